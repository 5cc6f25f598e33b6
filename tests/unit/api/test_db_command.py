"""`ckptguard db`: brings a database to this version, tells which one, and never its password."""

import json
from pathlib import Path

import pytest

from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.main import run
from ckptguard.errors import ConfigError
from ckptguard_api.settings import Settings
from ckptguard_migrations import current, head


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder that is not there yet, in an environment that names nothing else."""
    for name in ("CKPTGUARD_DATABASE_URL", "CKPTGUARD_DATABASE_URL_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CKPTGUARD_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def test_upgrade_makes_the_embedded_database(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "upgrade"]) == ExitCode.OK
    assert current(f"sqlite:///{folder}/ckptguard.sqlite") == head()
    assert folder.stat().st_mode & 0o077 == 0
    assert f"empty -> {head()}" in capsys.readouterr().out


def test_json_is_one_object_that_says_where_the_schema_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["db", "upgrade", "--json"])
    run(["db", "current", "--json"])
    first, second = capsys.readouterr().out.replace("}\n{", "}\0{").split("\0")
    assert json.loads(first)["before"] is None
    assert json.loads(second) == {
        "schema": 1,
        "database": f"sqlite:///{folder}/ckptguard.sqlite",
        "before": head(),
        "revision": head(),
        "head": head(),
        "is_at_head": True,
    }


def test_a_downgrade_wants_to_be_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["db", "upgrade"])
    assert run(["db", "downgrade", "base"]) == ExitCode.USAGE
    assert "--lose-data" in capsys.readouterr().err
    assert current(f"sqlite:///{folder}/ckptguard.sqlite") == head()
    assert run(["db", "downgrade", "base", "--lose-data"]) == ExitCode.OK
    assert current(f"sqlite:///{folder}/ckptguard.sqlite") is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://user:hunter2@127.0.0.1:1/name",
        "postgresql+psycopg://user@127.0.0.1:1/name?password=hunter2",
        "postgresql+psycopg:/user:hunter2@nowhere",
    ],
)
def test_a_password_is_never_shown(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not folder.exists()
    monkeypatch.setenv("CKPTGUARD_DATABASE_URL", url)
    assert run(["db", "current", "--json"]) != ExitCode.OK
    assert run(["db", "upgrade"]) != ExitCode.OK
    shown = capsys.readouterr()
    assert "hunter2" not in shown.out + shown.err


def test_a_password_is_hidden_where_all_goes_well(
    folder: Path, postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    url = postgres.replace("postgresql://", "postgresql+psycopg://")
    asked = f"{url}{'&' if '?' in url else '?'}password=hunter2"
    assert run(["db", "current", "--database-url", asked]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert "password=hidden" in shown


def test_the_url_is_read_from_a_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(f"sqlite:///{tmp_path}/other.sqlite\n")
    monkeypatch.setenv("CKPTGUARD_DATABASE_URL_FILE", str(file))
    assert run(["db", "upgrade"]) == ExitCode.OK
    assert current(f"sqlite:///{tmp_path}/other.sqlite") == head()
    assert not folder.exists()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = Settings(database_url_file=tmp_path / "missing")
    with pytest.raises(ConfigError, match="missing cannot be read"):
        _ = settings.database_address


def test_networks_are_read_from_a_list_and_checked() -> None:
    settings = Settings(webhook_allowed_networks="10.1.0.0/16, 127.0.0.1")  # type: ignore[arg-type]
    assert settings.webhook_allowed_networks == ("10.1.0.0/16", "127.0.0.1/32")
    with pytest.raises(ValueError, match="host bits set"):
        Settings(webhook_allowed_networks="10.1.0.1/16")  # type: ignore[arg-type]

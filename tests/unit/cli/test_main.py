"""The process edge: every way to end has its exit code, and JSON stays one object."""

import json
from importlib.metadata import EntryPoint

import pytest
import typer

from ckptguard import __version__
from ckptguard.cli import check, commands
from ckptguard.cli.main import run
from ckptguard.errors import AccessDeniedError, ManifestFormatError, StoreUnavailableError

Capture = pytest.CaptureFixture[str]


def raising(error: BaseException) -> object:
    def validate(*_: object, **__: object) -> None:
        raise error

    return validate


def test_the_version_is_said(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"ckptguard {__version__}\n"


def test_no_command_is_a_usage_error_that_shows_help(capsys: Capture) -> None:
    assert run([]) == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["chek"],
        ["check"],
        ["check", "x", "--depth", "deep"],
        ["check", "x", "--window", "none"],
        ["check", "x", "--jobs", "0"],
        ["check", "x", "--load", "stock", "--depth", "content"],
        ["check", "x", "--step", "all", "--manifest", "m.json"],
        ["manifest"],
    ],
)
def test_what_cannot_be_understood_is_2_and_says_so_on_stderr(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ckptguard: ")
    assert "\nnext: " in err


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (StoreUnavailableError("no answer", key="a"), 20, "store_unavailable"),
        (AccessDeniedError("refused", key="a"), 30, "access_denied"),
        (ManifestFormatError(["one", "two"]), 30, "manifest_format"),
        (RuntimeError("a fault of ours"), 30, "internal"),
    ],
)
def test_an_error_is_one_json_object_with_its_exit_code(
    error: Exception, code: int, name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(check, "validate", raising(error))
    assert run(["check", "x", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    assert answer["error"]["code"] == name
    assert answer["error"]["exit_code"] == code
    assert answer["error"]["next_step"]


def test_every_problem_of_a_manifest_is_said(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(check, "validate", raising(ManifestFormatError(["one", "two\x1b[31m"])))
    assert run(["check", "x"]) == 30
    err = capsys.readouterr().err
    assert "  - one\n" in err
    assert "  - two\\x1b[31m\n" in err


def test_an_interrupt_is_130_and_says_that_nothing_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(check, "validate", raising(KeyboardInterrupt()))
    assert run(["check", "x"]) == 130
    assert "nothing of it was changed" in capsys.readouterr().err


PLUGIN = typer.Typer()


@PLUGIN.command()
def greet() -> int:
    """Do what a plug-in does."""
    return 10


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for three installed packages: a good one, one that is broken, one that is no command."""
    here = __name__

    def entry_points(*, group: str) -> list[EntryPoint]:
        targets = {"greet": f"{here}:PLUGIN", "broken": "no_such_module:app", "odd": f"{here}:greet"}
        targets["check"] = "no_such_module:app"
        return [EntryPoint(name=name, value=value, group=group) for name, value in targets.items()]

    monkeypatch.setattr(commands, "entry_points", entry_points)


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_adds_a_command_that_is_imported_only_when_it_is_run(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("check", "greet", "broken"))
    assert run(["greet"]) == 10


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("name", ["broken", "odd"])
def test_a_broken_plug_in_breaks_only_itself(name: str, capsys: Capture) -> None:
    assert run([name]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_cannot_replace_a_command_of_ours(capsys: Capture) -> None:
    assert run(["check", "--help"]) == 0
    assert "every byte read once" in capsys.readouterr().out

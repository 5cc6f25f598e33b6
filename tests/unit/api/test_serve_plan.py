"""What `serve` refuses before anything starts, and the files of its folder."""

import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptguard.clock import SystemClock
from ckptguard.errors import ConfigError, UnauthorizedError
from ckptguard.model.policy import StoreTimes
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.store_rules import StoreSettings
from ckptguard_api.repositories.stores import list_stores
from ckptguard_api.services import Services
from ckptguard_api.serving.data_folder import DataFolder
from ckptguard_api.serving.listening import Listener
from ckptguard_api.serving.plan import ServePlan, settings_of, stores_of
from ckptguard_api.serving.worker_process import WorkerEnvironment, WorkerKeeper
from ckptguard_api.settings import Settings
from ckptguard_api.use_cases.access import grant_access
from ckptguard_api.use_cases.first_start import ensure_operator, ensure_stores, renew_worker_token
from ckptguard_api.use_cases.stores import create_store, remove_store

ANYWHERE = "0.0.0.0"  # noqa: S104 - what is tested is its refusal


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine_needs_no_tls(host: str) -> None:
    assert not Listener(host=host, port=0).has_tls


@pytest.mark.parametrize("host", [ANYWHERE, "::", "", "10.0.0.7", "node7.example", "localhost.evil.example"])
def test_another_address_needs_tls_or_a_proxy_that_has_it(host: str) -> None:
    with pytest.raises(ConfigError, match="--tls-terminated-by-proxy"):
        Listener(host=host, port=0)
    Listener(host=host, port=0, is_tls_terminated_by_proxy=True)


def test_certificate_and_key_belong_together_and_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    with pytest.raises(ConfigError, match="belong together"):
        Listener(host=ANYWHERE, port=0, tls_cert=file)
    with pytest.raises(ConfigError, match="no such file"):
        Listener(host=ANYWHERE, port=0, tls_cert=file, tls_key=file)
    file.touch()
    assert Listener(host=ANYWHERE, port=0, tls_cert=file, tls_key=file).has_tls


def test_the_worker_needs_a_name_that_the_certificate_holds(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    file.touch()
    listener = Listener(host=ANYWHERE, port=0, tls_cert=file, tls_key=file)
    with pytest.raises(ConfigError, match="--public-url"):
        ServePlan(settings=Settings(), listener=listener)
    ServePlan(settings=Settings(), listener=listener, has_worker=False)
    ServePlan(settings=Settings(), listener=listener, public_url="https://a.example:8080")


def test_clients_of_this_machine_get_an_address_that_they_can_call() -> None:
    listener = Listener(host=ANYWHERE, port=0, is_tls_terminated_by_proxy=True)
    assert listener.url(80) == "http://127.0.0.1:80"
    assert Listener(host="::1", port=0).url(81) == "http://[::1]:81"


def test_a_port_that_is_taken_is_told() -> None:
    with (
        Listener(host="127.0.0.1", port=0).open() as taken,
        pytest.raises(ConfigError, match="cannot listen"),
    ):
        Listener(host="127.0.0.1", port=taken.getsockname()[1]).open()


@pytest.mark.parametrize("url", ["mysql://x", "nonsense"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="database"):
        ServePlan(settings=settings_of({"database_url": url}), listener=Listener(host="::1", port=0))


def test_sqlite_belongs_to_one_process() -> None:
    listener = Listener(host="::1", port=0)
    with pytest.raises(ConfigError, match="needs PostgreSQL"):
        ServePlan(settings=Settings(), listener=listener, num_processes=2)
    several = settings_of({"database_url": "postgresql+psycopg://u@h/d"})
    ServePlan(settings=several, listener=listener, num_processes=2)


@pytest.mark.parametrize("options", [["a"], ["=x"], ["a="], ["a=x", "a=y"]])
def test_stores_that_say_nothing_or_two_things_are_refused(options: list[str]) -> None:
    with pytest.raises(ConfigError, match="--store"):
        stores_of(options)


def test_stores_of_the_environment_and_of_options_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTGUARD_STORES", "a=/x, b=s3://bucket/y?z=1,c=rel")
    expected = {"a": "/x", "b": "s3://bucket/y?z=1", "c": str(Path.cwd() / "rel")}
    assert settings_of({}).stores == expected
    given = {"stores": stores_of(["a=/x", "b=s3://bucket/y?z=1", "c=rel"])}
    assert settings_of(given).stores == expected
    monkeypatch.setenv("CKPTGUARD_STORES", "a")
    with pytest.raises(ConfigError, match="name=url"):
        settings_of({})


def test_every_setting_that_cannot_be_used_is_told() -> None:
    with pytest.raises(ConfigError, match=r"port.*lease_s"):
        settings_of({"lease_s": "x", "port": "y"})


def test_the_folder_belongs_to_one_service_at_a_time(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "a" / "b")
    with folder.locked():
        with pytest.raises(ConfigError, match=f"pid {os.getpid()}"), DataFolder(tmp_path / "a/b").locked():
            pass
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    with folder.locked():
        pass


def test_what_others_must_not_read_they_never_can(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / "token").write_text("ckg_old")
    (tmp_path / "token").chmod(0o644)
    assert folder.read_token() is None
    token = "ckg_" + "a" * 43
    folder.write_token(token)
    folder.write_address({"url": "http://x"})
    assert folder.read_token() == token
    assert json.loads(folder.address_file.read_text()) == {"url": "http://x"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    folder.remove_address()
    folder.remove_address()
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_token_is_made_at_the_first_start_alone(database: Database) -> None:
    services = Services(database=database, settings=Settings())
    kept: list[str] = []
    assert ensure_operator(services, kept.append)
    assert not ensure_operator(services, kept.append)
    assert ensure_operator(services, kept.append, is_new_wanted=True)
    assert len(set(kept)) == 2
    for token in kept:
        grant_access(services, token, None)


def test_a_token_that_cannot_be_kept_is_not_made(database: Database) -> None:
    services = Services(database=database, settings=Settings())
    seen: list[str] = []

    def full_disk(token: str) -> None:
        seen.append(token)
        raise BlockingIOError

    with pytest.raises(BlockingIOError):
        ensure_operator(services, full_disk)
    assert ensure_operator(services, lambda _token: None)
    with pytest.raises(UnauthorizedError):
        grant_access(services, seen[0], None)


def test_a_worker_of_the_service_before_is_refused(database: Database) -> None:
    services = Services(database=database, settings=Settings())
    ensure_operator(services, lambda _token: None)
    first, other = renew_worker_token(services, "w"), renew_worker_token(services, "other")
    second = renew_worker_token(services, "w")
    for token in (other, second):
        grant_access(services, token.text, None)
    with pytest.raises(UnauthorizedError):
        grant_access(services, first.text, None)


def test_stores_keep_their_settings_and_every_bad_one_is_told(database: Database) -> None:
    services = Services(database=database, settings=Settings())
    ensure_operator(services, lambda _token: None)
    for _ in range(2):
        ensure_stores(services, {"a": "/data/a", "b": "/data/b"})
    with pytest.raises(ConfigError, match=r"--store a: .*--store c: "):
        ensure_stores(services, {"a": "/elsewhere", "c": "gopher://x/y"})
    with database.read() as tx:
        assert [(row.name, row.url) for row in list_stores(tx, 1)] == [
            ("a", "file:///data/a"),
            ("b", "file:///data/b"),
        ]


def test_a_store_that_is_named_at_the_start_keeps_what_was_set_and_gets_no_second_name(
    database: Database,
) -> None:
    services = Services(database=database, settings=Settings())
    ensure_operator(services, lambda _token: None)
    own = StoreSettings(times=StoreTimes.COPIED, settle_s=1.0)
    create_store(services, "a", "/data/a", own, project_id=1, actor=SERVICE)
    remove_store(services, "a", project_id=1, actor=SERVICE)
    ensure_stores(services, {"a": "/data/a"})
    with pytest.raises(ConfigError, match="is store 'a' already"):
        ensure_stores(services, {"b": "/data/a"})
    with database.read() as tx:
        (row,) = list_stores(tx, 1)
    assert (row.times, row.settle_s) == ("copied", 1.0)


def test_the_worker_is_told_what_it_needs_and_no_more() -> None:
    told = WorkerEnvironment(url="http://x", token="ckg_t", is_http_allowed=False).over(  # noqa: S106
        {
            "PATH": "/bin",
            "CKPTGUARD_DATABASE_URL": "postgresql://u:p@h/d",
            "CKPTGUARD_DATABASE_URL_FILE": "/run/secrets/url",
            "CKPTGUARD_DATA_DIR": "/var/lib/ckptguard",
            "CKPTGUARD_TOKEN": "ckg_admin",
            "PGPASSWORD": "hush",
            "PGPASSFILE": "/root/.pgpass",
        }
    )
    assert told == {
        "PATH": "/bin",
        "CKPTGUARD_URL": "http://x",
        "CKPTGUARD_TOKEN": "ckg_t",
    }


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_a_worker_that_dies_comes_again_and_none_is_left_at_the_end(tmp_path: Path) -> None:
    script = "import os, sys, time; open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(60)"
    command = (sys.executable, "-c", script, f"{tmp_path}/")
    keeper = WorkerKeeper(command, os.environ, clock=SystemClock())
    keeper.start()
    _wait_until(lambda: len(list(tmp_path.iterdir())) == 1)
    assert keeper.pid is not None
    os.kill(keeper.pid, 9)
    _wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    keeper.stop()
    for file in tmp_path.iterdir():
        assert not Path(f"/proc/{file.name}").exists()
    assert not any(thread.name == "worker-keeper" for thread in threading.enumerate())


def test_a_keeper_that_was_never_started_stops() -> None:
    WorkerKeeper(("true",), {}, clock=SystemClock()).stop()

"""`adopt` and the real service: everything there is, whatever comes, and what goes again."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.main import run as run_command
from ckptguard.client import Address, Client
from ckptguard.clock import SystemClock
from ckptguard.model.service import Scope
from ckptguard.operations.adopt.adoption import Adoption, Wish
from ckptguard.operations.adopt.loop import adopt_once
from ckptguard.operations.adopt.news import News, NewsKind
from ckptguard.operations.adopt.registrar import Service
from ckptguard.operations.adopt.sweep import Naming
from ckptguard.storage.open_url import open_location
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.raw_dcp import RawCheckpoint
from ckptguard.testing.save_manifest import leave_manifest
from ckptguard_api.database import Database
from tests.databases import fresh_database
from tests.integration.adopt_process import adopting
from tests.integration.lease_service import eventually
from tests.served_app import ServedApp, served_app
from tests.unit.operations.adopt.adopting import CORPUS, SAVE, CountingStore, RememberingService

QUICK = ("--every", "0.1", "--settle", "0.3")


@pytest.fixture
def empty_database(tmp_path: Path) -> Iterator[Database]:
    with fresh_database("sqlite", folder=tmp_path) as database:
        yield database


@pytest.fixture
def served(empty_database: Database) -> Iterator[ServedApp]:
    with served_app(empty_database) as running:
        yield running


@dataclass(kw_only=True)
class Home:
    """A store with a run's folder, known to a running service."""

    served: ServedApp
    admin: httpx.Client
    folder: Path
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        store = {"name": "demo", "url": f"file://{self.folder / 'store'}", "settle_s": 0}
        assert self.admin.post("/v1/stores", json=store).status_code in (200, 201)
        self.token = self.served.token(Scope.REGISTER, Scope.ADMIN)

    @property
    def root(self) -> Path:
        """Where the run saves."""
        return self.folder / "store" / "run-7"

    @property
    def environment(self) -> dict[str, str]:
        """Of a command that asks this service."""
        return {"CKPTGUARD_URL": self.served.url, "CKPTGUARD_TOKEN": self.token, "OMP_NUM_THREADS": "1"}

    def save(self, step: int, *, save: str = SAVE, name: str = "step-{}") -> Path:
        """Put a real checkpoint there."""
        return copy_checkpoint(CORPUS / save, self.root / name.format(step))

    def history(self, run: str = "run-7") -> list[dict[str, Any]]:
        """Return what the service knows, newest first."""
        answer = self.admin.get("/v1/checkpoints", params={"run": run, "limit": 500})
        items: list[dict[str, Any]] = [] if answer.status_code == 404 else answer.json()["items"]
        return items

    def steps(self, lifecycle: str = "registered") -> list[int]:
        """Return the steps in one state, oldest first."""
        return sorted(each["step"] for each in self.history() if each["lifecycle"] == lifecycle)

    def watching(self, *arguments: object) -> Any:  # noqa: ANN401 - a context manager
        """Watch the run's folder."""
        given = (self.root, "--run", "run-7", *QUICK, *arguments)
        return adopting(*given, environment=self.environment, folder=self.folder)


@pytest.fixture
def home(served: ServedApp, tmp_path: Path) -> Home:
    return Home(served=served, admin=served.client(), folder=tmp_path)


@pytest.fixture
def adopt(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401
    """Return what runs `adopt` in this process, and gives exit code, standard output and error."""
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CKPTGUARD_STORES", raising=False)

    def adopt(*arguments: object) -> tuple[int, str, str]:
        code = run_command(["adopt", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert home.token not in out + err
        own = [line for line in out.splitlines() if "[info" not in line]  # the service logs in this process
        return code, "\n".join(own), err

    return adopt


def test_all_there_is_is_registered_once_and_the_newest_queued(home: Home, adopt: Any) -> None:  # noqa: ANN401
    for step in (200, 1000, 99, 30):
        home.save(step, name="checkpoint-{}")
    code, out, _ = adopt(home.root, "--run", "run-7", "--validate", 2)
    assert (code, home.steps()) == (0, [30, 99, 200, 1000])
    assert "4 checkpoints: 4 registered; 2 to be validated" in out
    queued = [each["step"] for each in home.history() if each["validation_state"] == "queued"]
    assert sorted(queued) == [200, 1000]
    run = home.admin.get("/v1/runs/run-7").json()
    assert run["step_went_back_at"] is None
    code, out, _ = adopt(home.root, "--run", "run-7", "--validate", 2)
    assert (code, len(home.history())) == (0, 4)
    assert "4 was registered before" in out


def test_what_register_told_is_the_same_to_adopt_and_the_other_way(home: Home, adopt: Any) -> None:  # noqa: ANN401
    for step, save in enumerate(("accelerate_save_model", "megatron_dp_fullpar_ws2", SAVE), start=1):
        folder = home.save(step, save=save)
        assert run_command(["register", str(folder), "--run", "run-7"]) == 0
    code, out, _ = adopt(home.root, "--run", "run-7")
    assert (code, len(home.history())) == (0, 3), out
    assert "3 was registered before" in out


@pytest.mark.parametrize("is_writer_first", [False, True])
def test_only_the_writers_own_registration_counts_as_the_writers(
    home: Home,
    adopt: Any,  # noqa: ANN401
    is_writer_first: bool,  # noqa: FBT001
) -> None:
    folder = home.save(7)
    manifest = json.loads(leave_manifest(folder, format_name="dcp").read_bytes())
    location = {"url": str(folder)}

    def writer() -> int:
        body = {"location": location, "step": 7, "manifest": manifest}
        return home.admin.post("/v1/runs/kit/checkpoints", json=body).status_code

    if is_writer_first:
        assert writer() == 201
    assert adopt(home.root, "--run", "kit")[0] == 0
    (checkpoint,) = home.history("kit")
    (part,) = home.admin.get(f"/v1/checkpoints/{checkpoint['id']}").json()["parts"]
    assert part["is_from_writer"] is is_writer_first
    assert part["identity"]
    assert writer() == 200
    (part,) = home.admin.get(f"/v1/checkpoints/{checkpoint['id']}").json()["parts"]
    assert part["is_from_writer"]
    assert len(home.history("kit")) == 1


def test_a_location_that_no_store_holds_is_refused_with_the_flag(adopt: Any, tmp_path: Path) -> None:  # noqa: ANN401
    copy_checkpoint(CORPUS / SAVE, tmp_path / "elsewhere" / "step-1")
    code, _, err = adopt(tmp_path / "elsewhere", "--run", "r")
    assert code == ExitCode.UNUSABLE
    assert "--store" in err


def test_exit_codes_follow_what_was_found(home: Home, adopt: Any) -> None:  # noqa: ANN401
    assert adopt(home.root, "--run", "run-7")[0] == 40
    assert adopt(home.folder / "nowhere", "--run", "run-7")[0] == 40
    assert adopt(home.root)[0] == 2
    assert adopt(home.root, "--run", "run-7", "--watch", "--dry-run")[0] == 2
    assert adopt(home.root, "--run", "run-7", "--validate", "few")[0] == 2
    folder = home.save(1)
    assert adopt(home.root, "--run", "run-7", "--dry-run")[0] == 0
    assert home.history() == []
    os.utime(folder / ".metadata")
    assert adopt(home.root, "--run", "run-7", "--settle", "0.2")[0] == 0
    (folder / "__0_0.distcp").rename(home.folder / "kept")
    (folder / ".metadata").unlink()
    assert adopt(home.root, "--run", "run-7")[0] == 40


def test_json_is_one_object_with_everything(home: Home, adopt: Any) -> None:  # noqa: ANN401
    home.save(1)
    (home.root / "step-2.tmp").mkdir()
    (home.root / "step-2.tmp" / "__0_0.distcp").write_bytes(b"x")
    (home.root / "latest").write_text("step-9")
    code, out, _ = adopt(home.root, "--run", "run-7", "--json")
    value = json.loads(out)
    assert (code, value["schema"], value["is_dry_run"]) == (0, 1, False)
    assert value["counts"] == {"pointer": 1, "registered": 1, "skipped": 1}
    (registered,) = (each for each in value["checkpoints"] if each["kind"] == "registered")
    assert (registered["run"], registered["step"], registered["path"]) == ("run-7", 1, "step-1")
    assert registered["checkpoint_id"] == home.history()[0]["id"]
    assert [each["fault"] for each in value["pointers"]] == ["dangling"]


def test_a_link_that_leads_nowhere_is_a_dangling_pointer(home: Home, adopt: Any) -> None:  # noqa: ANN401
    home.save(1)
    (home.root / "last").symlink_to("step-9")
    (home.root / "latest").symlink_to("step-1")
    code, out, _ = adopt(home.root, "--run", "run-7")
    assert code == 0
    assert "dangling pointer run-7 (last)" in out
    assert "(latest)" not in out


@pytest.mark.torch
def test_a_half_written_save_is_never_registered_and_a_resave_is(home: Home) -> None:
    def go(name: str) -> None:
        (home.folder / "store" / f"go.{name}").touch()

    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.adopt_writer", str(home.root), "100", "200", "100"],
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        with home.watching() as watcher:
            eventually(
                lambda: watcher.of("skipped", path="step-100", reason="no .metadata"), what=watcher.said()
            )
            assert home.steps() == []
            go("100")
            eventually(lambda: home.steps() == [100], what="step 100")
            eventually(lambda: watcher.of("skipped", path="step-200"), what="half of step 200")
            assert home.steps() == [100]
            go("200")
            eventually(lambda: home.steps() == [100, 200], what="step 200")
            first = watcher.of("registered", path="step-100")
            eventually((home.folder / "store" / "halted.100.again").exists, what="the second save of 100")
            go("100.again")
            eventually(lambda: len(watcher.of("registered", path="step-100")) == 2, what="the re-save")
            assert watcher.of("registered", path="step-100")[1]["superseded"] == [first[0]["checkpoint_id"]]
            assert all(line["is_validated"] for line in watcher.of("registered"))
            assert watcher.stop() == 0
    finally:
        writer.kill()
        writer.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_watcher_cleanly(home: Home, number: signal.Signals) -> None:
    home.save(1)
    with home.watching("--every", "1h") as watcher:
        eventually(lambda: watcher.of("registered"), what=watcher.said())
        assert watcher.stop(number) == 0
        assert watcher.errors.read_text() == ""


def test_what_retention_takes_is_deleted_in_the_service(home: Home) -> None:
    for step in (1, 2):
        home.save(step)
    with home.watching() as watcher:
        eventually(lambda: home.steps() == [1, 2], what=watcher.said())
        (home.root / "step-1").rename(home.folder / "taken")
        eventually(lambda: watcher.of("deleted", step=1), what=watcher.said())
        assert (home.steps(), home.steps("deleted")) == ([2], [1])
        home.root.rename(home.folder / "unmounted")
        eventually(lambda: watcher.of("gone", run="run-7"), what=watcher.said())
        (home.folder / "unmounted").rename(home.root)
        home.save(3)
        eventually(lambda: home.steps() == [2, 3], what=watcher.said())
        assert len(watcher.of("registered", step=2)) == 1
        assert watcher.stop() == 0


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_a_service_that_is_away_is_waited_for(empty_database: Database, tmp_path: Path) -> None:
    port = _free_port()
    with served_app(empty_database, port=port) as running:
        home = Home(served=running, admin=running.client(), folder=tmp_path)
        with home.watching() as watcher:
            home.save(1)
            eventually(lambda: watcher.of("registered", step=1), what=watcher.said())
            running.close()
            home.save(2)
            eventually(lambda: watcher.of("trouble"), what=watcher.said())
            with served_app(empty_database, port=port, projects=()) as again:
                home.served, home.admin = again, again.client()
                eventually(lambda: watcher.of("recovered"), what=watcher.said())
                assert home.steps() == [1, 2]
                assert len(watcher.of("trouble")) == 1
                assert watcher.stop() == 0


def many(root: Path, count: int) -> None:
    """Make folders of steps with the same small files, by hard links."""
    source = root.parent.parent / "source"
    source.mkdir()
    RawCheckpoint().write(source)
    names = [path.name for path in source.iterdir()]
    for step in range(count):
        folder = root / f"step-{step}"
        folder.mkdir()
        for name in names:
            os.link(source / name, folder / name)


def _adopted(home: Home, service: Service, count: int) -> tuple[CountingStore, list[News], float]:
    """Adopt that many; return what was asked of the store, what was told, and the seconds that it took."""
    many(home.root, count)
    store, prefix = open_location(str(home.root))
    counting = CountingStore(store)
    clock, news, done = SystemClock(), list[News](), list[tuple[int, int]]()
    adoption = Adoption(
        Wish(target=str(home.root), naming=Naming(run="run-7")),
        service,
        clock=clock,
        tell=news.append,
        advance=lambda number, total: done.append((number, total)),
        opened=(counting, prefix),
    )
    began_s = clock.monotonic_s()
    adopt_once(adoption, clock, news.append)
    assert done == [(number, count) for number in range(1, count + 1)]
    return counting, news, clock.monotonic_s() - began_s


def _hold_to_listing_and_metadata(counting: CountingStore, count: int) -> None:
    assert counting.walks == 1
    assert len(counting.opened) == len(set(counting.opened)) == count
    assert {path.rpartition("/")[2] for path in counting.opened} == {".metadata"}


def test_a_thousand_are_adopted_by_one_listing_and_their_metadata_alone(home: Home) -> None:
    service = RememberingService()
    counting, news, _ = _adopted(home, service, 1_000)
    _hold_to_listing_and_metadata(counting, 1_000)
    assert service.steps() == list(range(1_000))
    assert service.steps(validated=True) == [997, 998, 999]
    assert {each.kind for each in news} == {NewsKind.REGISTERED}


@pytest.mark.parametrize(
    "count", [100, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])]
)
def test_the_service_queues_the_newest_three_of_however_many(home: Home, count: int) -> None:
    with Client(Address.of(home.served.url, home.token)) as client:
        counting, _, seconds = _adopted(home, client, count)
    _hold_to_listing_and_metadata(counting, count)
    run = home.admin.get("/v1/runs/run-7").json()
    assert (run["counts"]["none"], run["open_validations"]) == (count, 3), f"{seconds:.1f} s"
    newest = home.history()[:4]
    assert [each["step"] for each in newest] == [count - 1, count - 2, count - 3, count - 4]
    assert [each["validation_state"] for each in newest] == ["queued"] * 3 + [None]

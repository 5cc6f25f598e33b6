"""The thread that sends: nothing waits for the service, nothing is lost, nothing is sent too late."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ckptguard.client.answers import Checkpoint
from ckptguard.client.call import Call
from ckptguard.client.calls import announce
from ckptguard.errors import ConfigError
from ckptguard.integrations import incidents
from ckptguard.integrations.registration.sender import SPOOL_DEADLINE_S, Sender
from ckptguard.integrations.registration.spool import Spool
from tests.scripted_service import Reply, ScriptedService, problem, scripted_service
from tests.unit.integrations.registration.entries import CREATED, REGISTER, SAVED_AT, entry, sender

_WITHIN_S = 20.0
_ANNOUNCE = "POST /v1/runs/r/announcements"


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """Return a service that takes every registration."""
    with scripted_service() as scripted:
        scripted.on(REGISTER, CREATED)
        yield scripted


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Return an empty spool."""
    return Spool(tmp_path / "spool")


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    incidents.forget()


def _steps(service: ScriptedService) -> list[int]:
    return [asked.body["step"] for asked in service.requests(REGISTER)]


def _announcement() -> Call[Checkpoint]:
    return announce("r", step=1, location={"url": "/c/step-1"}, save_id="s")


def test_a_registration_is_sent_and_forgotten(service: ScriptedService, spool: Spool, tmp_path: Path) -> None:
    sending = sender(spool, service)
    sending.register(entry(tmp_path), is_in_place=True)
    assert sending.flush(_WITHIN_S)
    [asked] = service.requests(REGISTER)
    assert asked.body["save_id"] == "s-1"
    assert asked.body["manifest"] == {"step": 1}
    assert spool.names() == []


def test_the_thread_ends_when_nothing_is_left(service: ScriptedService, spool: Spool, tmp_path: Path) -> None:
    sending = sender(spool, service)
    for step in (1, 2):
        sending.register(entry(tmp_path, step), is_in_place=True)
        assert sending.flush(_WITHIN_S)
        _until(lambda: sending._thread is None)
    assert _steps(service) == [1, 2]


def test_while_the_service_is_away_everything_waits_on_disk(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    service.on(REGISTER, problem(503, "unavailable"))
    sending = sender(spool, service)
    for step in (1, 2):
        sending.register(entry(tmp_path, step), is_in_place=True)
    assert not sending.flush(_WITHIN_S)
    assert len(spool.names()) == 2
    service.on(REGISTER, CREATED)
    service.asked.clear()
    assert sending.flush(_WITHIN_S)
    assert _steps(service) == [1, 2]


def test_the_next_process_sends_what_the_last_one_left(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    spool.put(entry(tmp_path, 1))
    assert sender(spool, service).flush(_WITHIN_S)
    assert _steps(service) == [1]


def test_registering_does_not_wait_for_a_service_that_says_nothing(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    held = threading.Event()
    service.on(REGISTER, Reply(status=201, held=held))
    sending = sender(spool, service)
    started_s = time.monotonic()
    for step in range(5):
        sending.register(entry(tmp_path, step), is_in_place=True)
    took_s = time.monotonic() - started_s
    held.set()
    assert took_s < SPOOL_DEADLINE_S
    assert len(spool.names()) == 5


@pytest.mark.parametrize("status", [409, 422])
def test_what_the_service_refuses_is_put_aside_and_the_next_is_sent(
    service: ScriptedService, spool: Spool, tmp_path: Path, status: int
) -> None:
    code = "conflict" if status == 409 else "location_refused"
    service.on(REGISTER, problem(status, code, "not this one"), CREATED)
    for step in (1, 2):
        spool.put(entry(tmp_path, step))
    assert sender(spool, service).flush(_WITHIN_S)
    assert _steps(service) == [1, 2]
    aside = spool.read_refused(spool.refused()[0])
    assert aside is not None
    assert aside.refused == f"{code}: not this one"
    assert incidents.counters()["registrations_refused"] == 1


_NO_BRANCH = "/branch: run 'r' has no branch 3; its current one is 0"


def test_a_branch_that_the_service_has_lost_keeps_no_save_from_it(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    service.on(REGISTER, problem(422, "invalid_request", _NO_BRANCH, problems=[_NO_BRANCH]), CREATED)
    spool.put(entry(tmp_path, branch=3, is_branch_inherited=True))
    assert sender(spool, service).flush(_WITHIN_S)
    assert [asked.body.get("branch") for asked in service.requests(REGISTER)] == [3, None]
    assert (spool.names(), spool.refused()) == ([], [])


def test_a_branch_that_somebody_asked_for_is_never_another_one(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    service.on(REGISTER, problem(422, "invalid_request", _NO_BRANCH, problems=[_NO_BRANCH]), CREATED)
    spool.put(entry(tmp_path, branch=3))
    assert sender(spool, service).flush(_WITHIN_S)
    assert len(service.requests(REGISTER)) == 1
    assert len(spool.refused()) == 1


def test_a_token_that_is_refused_loses_nothing(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    service.on(REGISTER, problem(401, "unauthorized"))
    spool.put(entry(tmp_path))
    assert not sender(spool, service).flush(_WITHIN_S)
    assert len(spool.names()) == 1


def test_an_old_entry_is_not_sent_once_another_save_stands_there(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    waiting = entry(tmp_path)
    spool.put(waiting)
    Path(waiting.manifest_at).write_bytes(b'{"step":2}')
    assert sender(spool, service).flush(_WITHIN_S)
    assert _steps(service) == []
    aside = spool.read_refused(spool.refused()[0])
    assert aside is not None
    assert "another save stands at" in (aside.refused or "")


def test_a_checkpoint_is_registered_only_once_it_has_its_final_name(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    waiting = entry(tmp_path / "final")
    (tmp_path / "final" / "step-1").rename(tmp_path / "draft")
    sending = sender(spool, service)
    sending.register(waiting, is_in_place=False)
    assert not sending.flush(_WITHIN_S)
    assert _steps(service) == []
    (tmp_path / "draft").rename(tmp_path / "final" / "step-1")
    assert sending.flush(_WITHIN_S)
    assert _steps(service) == [1]


def test_a_checkpoint_that_was_deleted_is_given_up_after_a_day(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    spool.put(entry(tmp_path, 1, saved_at=SAVED_AT - timedelta(days=2)))
    spool.put(entry(tmp_path, 2))
    for step in (1, 2):
        shutil.rmtree(tmp_path / f"step-{step}")
    assert not sender(spool, service).flush(_WITHIN_S)
    assert (len(spool.names()), len(spool.refused()), _steps(service)) == (1, 1, [])


def test_an_entry_for_another_service_is_left_alone(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    spool.put(entry(tmp_path, 1, service="https://other.example"))
    spool.put(entry(tmp_path, 2, service=service.url))
    sender(spool, service).flush(_WITHIN_S)
    assert _steps(service) == [2]
    assert len(spool.names()) == 1


def test_a_spool_that_cannot_be_written_is_made_up_for_from_memory(
    service: ScriptedService, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    sending = sender(Spool(tmp_path / "file" / "spool"), service)
    sending.register(entry(tmp_path), is_in_place=True)
    assert sending.flush(_WITHIN_S)
    assert _steps(service) == [1]
    assert incidents.counters()["spool_failed"] == 1


def test_a_broken_entry_stands_in_nobodys_way(service: ScriptedService, spool: Spool, tmp_path: Path) -> None:
    spool.put(entry(tmp_path, 1))
    (spool.folder / "0.json").write_bytes(b"{")
    assert sender(spool, service).flush(_WITHIN_S)
    assert _steps(service) == [1]
    assert spool.refused() == ["0.json"]


class _OfAnother(Spool):
    """A folder in which another user put a file that only that user can remove."""

    def refuse(self, name: str, reason: str) -> None:
        if name == "0.json":
            raise PermissionError(name)
        super().refuse(name, reason)


def test_nor_does_one_that_cannot_be_put_aside(service: ScriptedService, tmp_path: Path) -> None:
    spool = _OfAnother(tmp_path / "spool")
    spool.put(entry(tmp_path, 1))
    (spool.folder / "0.json").write_bytes(b"{")
    sender(spool, service).flush(_WITHIN_S)
    assert _steps(service) == [1]
    assert incidents.counters()["registrations_refused"] == 1


def test_without_a_service_one_warning_is_given(
    spool: Spool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def nowhere() -> None:
        msg = "no service is known"
        raise ConfigError(msg)

    sending = Sender(spool, connect=nowhere)  # type: ignore[arg-type]
    for step in range(3):
        sending.register(entry(tmp_path, step), is_in_place=True)
        assert not sending.flush(_WITHIN_S)
    assert len(spool.names()) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_announcement_is_sent_before_the_registration(
    service: ScriptedService, spool: Spool, tmp_path: Path
) -> None:
    service.on(_ANNOUNCE, Reply(status=201, value=CREATED.value["checkpoint"]))
    sending = sender(spool, service)
    sending.announce(_announcement())
    sending.register(entry(tmp_path), is_in_place=True)
    assert sending.flush(_WITHIN_S)
    assert [asked.path.rpartition("/")[2] for asked in service.asked] == ["announcements", "checkpoints"]


def test_an_announcement_that_nobody_takes_is_dropped(service: ScriptedService, spool: Spool) -> None:
    service.on(_ANNOUNCE, problem(503, "unavailable"))
    sending = sender(spool, service)
    sending.announce(_announcement())
    assert sending.flush(_WITHIN_S)
    assert incidents.counters()["announcements_failed"] == 1


def test_it_imports_without_torch() -> None:
    code = "import sys, ckptguard.integrations.registration; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _WITHIN_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(0.005)

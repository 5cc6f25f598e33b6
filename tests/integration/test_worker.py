"""The worker against a real HTTP server, real checkpoints and real kills."""

import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ckptguard.model.policy import Depth, Policy
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.save_manifest import leave_manifest
from tests.integration.lease_service import TOKEN, LeaseService, Validation, eventually, lease_service
from tests.integration.worker_process import (
    CANARY_CHILD,
    VALIDATION_CHILD,
    WorkerProcess,
    arguments,
    environment_of,
    running_worker,
    waits_for_its_job,
)

pytestmark = pytest.mark.torch

SOUND = "dcp_torch2_14_1_fsdp2_ws2"
OWN_CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
STRUCTURE = Policy(settle_s=0, depth=Depth.STRUCTURE)


SECRETS = {"AWS_SECRET_ACCESS_KEY": "hush", "SOME_PASSWORD": "hush", "CKPTGUARD_DATABASE_URL": "hush"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of all tests here; each damages copies of its own."""
    folder = tmp_path_factory.mktemp("worker") / "store"
    copy_checkpoint(OWN_CORPUS / SOUND, folder / "run" / "step-2")
    return folder


@pytest.fixture(scope="module")
def running(root: Path) -> Iterator[tuple[LeaseService, WorkerProcess]]:
    """Run one worker for all tests that it outlives: whatever happens to its children, it does."""
    with (
        lease_service() as service,
        running_worker(
            service.url, root, root.parent / "log", "--store", "other", environment=SECRETS
        ) as worker,
    ):
        yield service, worker


@pytest.fixture
def service(running: tuple[LeaseService, WorkerProcess]) -> LeaseService:
    """Return the service of the one worker."""
    return running[0]


@pytest.fixture
def worker(running: tuple[LeaseService, WorkerProcess]) -> WorkerProcess:
    """Return the one worker."""
    return running[1]


@pytest.fixture
def own(
    root: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[LeaseService, WorkerProcess]]:
    """Run a worker that the test may end."""
    options = getattr(request, "param", ())
    with lease_service() as service, running_worker(service.url, root, tmp_path / "log", *options) as worker:
        yield service, worker


def warm_canary(worker: WorkerProcess) -> int:
    """Return the child that waits, once it has imported torch."""

    def is_warm(pid: int) -> bool:
        return "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text()

    found: list[int] = eventually(
        lambda: [pid for pid in worker.children(CANARY_CHILD) if is_warm(pid)], what="a warm canary"
    )
    return found[0]


def report_of(validation: Validation, worker: WorkerProcess) -> dict[str, Any]:
    reports: list[dict[str, Any]] = eventually(
        lambda: validation.reports or worker.process.poll(), what="a verdict", said=worker.said
    )
    assert isinstance(reports, list), worker.said()
    return reports[0]


@pytest.mark.slow
def test_a_warm_child_that_hangs_is_replaced_by_a_cold_one(
    service: LeaseService, worker: WorkerProcess
) -> None:
    hung = warm_canary(worker)
    eventually(lambda: waits_for_its_job(hung), what="a child that imported torch")
    os.kill(hung, signal.SIGSTOP)
    report = report_of(service.add("run/step-2"), worker)
    assert (report["verdict"], report["assurance"]) == ("VALID", "loaded"), report
    assert not Path(f"/proc/{hung}").exists()
    assert "does not answer" in worker.said()


def test_a_sound_checkpoint_becomes_valid_and_loaded(service: LeaseService, worker: WorkerProcess) -> None:
    service.verdict_after_files = 2
    validation = service.add("run/step-2")
    report = report_of(validation, worker)
    service.verdict_after_files = 0
    assert (report["verdict"], report["assurance"]) == ("VALID", "loaded"), report
    assert sorted(validation.files) == ["__0_0.distcp", "__1_0.distcp"]
    assert {file["device"] for file in validation.files.values()} == {"cpu"}
    assert service.capabilities[0]["stores"] == ["demo", "other"]
    assert service.capabilities[0]["depths"] == ["structure", "content", "load"]


def test_a_damaged_checkpoint_becomes_invalid(
    service: LeaseService, worker: WorkerProcess, root: Path
) -> None:
    copy_checkpoint(root / "run" / "step-2", root / "run" / "damaged")
    shard = root / "run" / "damaged" / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    report = report_of(service.add("run/damaged", policy=Policy(settle_s=0, is_mtime_ignored=True)), worker)
    assert (report["verdict"], report["basis"]) == ("INVALID", "damage")


def test_no_child_knows_the_token_nor_any_word_of_the_service(
    service: LeaseService, worker: WorkerProcess
) -> None:
    validation = service.add("run/step-2")
    pids = [
        eventually(lambda: worker.children(VALIDATION_CHILD), what="a validation child")[0],
        warm_canary(worker),
    ]
    for told in map(environment_of, pids):
        assert "PATH" in told
        assert not [name for name in told if name.startswith("CKPTGUARD_")]
        assert not [name for name, text in told.items() if TOKEN in text or text == "hush"]
    assert not [pid for pid in (*pids, worker.process.pid) if TOKEN in " ".join(arguments(pid))]
    report_of(validation, worker)


def test_a_killed_canary_is_an_outcome_and_the_worker_goes_on(
    service: LeaseService, worker: WorkerProcess
) -> None:
    hung = warm_canary(worker)
    eventually(lambda: waits_for_its_job(hung), what="a child that imported torch")
    os.kill(hung, signal.SIGSTOP)
    first = service.add("run/step-2")
    cold = eventually(lambda: set(worker.children(CANARY_CHILD)) - {hung}, what="the child in its place")
    os.kill(cold.pop(), signal.SIGKILL)  # it has the job, and imports torch
    report = report_of(first, worker)
    codes = [finding["code"] for finding in report["findings"] if finding["check"] == "load"]
    assert (report["verdict"], codes) == ("UNKNOWN", ["canary_crashed"])
    assert report_of(service.add("run/step-2"), worker)["assurance"] == "loaded"


def test_a_killed_validation_child_gives_the_lease_back_and_the_worker_goes_on(
    service: LeaseService, worker: WorkerProcess
) -> None:
    validation = service.add("run/step-2")
    pid = eventually(lambda: worker.children(VALIDATION_CHILD), what="a validation child")[0]
    os.kill(pid, signal.SIGKILL)
    report = report_of(validation, worker)  # of the second attempt
    first = validation.attempts[0]
    assert (first.ending, len(validation.attempts)) == ("failed", 2)
    assert "SIGKILL" in first.reason
    assert report["verdict"] == "VALID"


def test_a_worker_that_slept_past_its_lease_writes_nothing_and_goes_on(
    service: LeaseService, worker: WorkerProcess
) -> None:
    service.lease_s = 0.5
    validation = service.add("run/step-2")
    eventually(lambda: validation.attempts, what="a lease")
    os.kill(worker.process.pid, signal.SIGSTOP)
    first = validation.attempts[0]
    eventually(lambda: service.has_ended(first), what="the end of the lease")
    service.lease_s = 60.0
    os.kill(worker.process.pid, signal.SIGCONT)
    report = report_of(validation, worker)
    assert service.refused
    assert (first.ending, validation.attempts[-1].ending, len(validation.reports)) == (
        "expired",
        "finished",
        1,
    )
    assert report["verdict"] == "VALID"


def test_no_child_outlives_its_supervisor(own: tuple[LeaseService, WorkerProcess]) -> None:
    service, worker = own
    canary = warm_canary(worker)
    os.kill(canary, signal.SIGSTOP)
    service.add("run/step-2")
    validating = eventually(lambda: worker.children(VALIDATION_CHILD), what="a validation child")[0]
    watched = [os.pidfd_open(pid) for pid in (canary, validating)]
    worker.process.kill()
    for descriptor in watched:
        ended, _, _ = select.select([descriptor], [], [], 10.0)
        os.close(descriptor)
        assert ended, "a child still runs"


def test_a_service_that_is_away_for_a_while_gets_the_verdict_when_it_is_back(
    service: LeaseService, worker: WorkerProcess
) -> None:
    validation = service.add("run/step-2")
    eventually(lambda: validation.attempts, what="a lease")
    service.is_down = True
    eventually(lambda: "trying again" in worker.said(), what="a log line")
    service.is_down = False
    assert report_of(validation, worker)["verdict"] == "VALID"
    assert len(validation.attempts) == 1


def test_what_one_attempt_has_read_the_next_takes_over(
    service: LeaseService, worker: WorkerProcess, root: Path
) -> None:
    service.verdict_after_files = 2
    first = service.add("run/step-2")
    whole = report_of(first, worker)
    service.verdict_after_files = 0
    second = service.add("run/step-2", files=dict(first.files))
    report = report_of(second, worker)
    content = next(check for check in report["checks"] if check["name"] == "content")
    shards = sum(path.stat().st_size for path in (root / "run" / "step-2").glob("*.distcp"))
    assert content["counts"]["bytes_reused"] == shards
    assert report["bytes_read"] == whole["bytes_read"] - shards
    assert (report["verdict"], report["assurance"]) == ("VALID", "loaded")


def test_a_drained_worker_finishes_what_it_holds(own: tuple[LeaseService, WorkerProcess]) -> None:
    service, worker = own
    validation = service.add("run/step-2")
    eventually(lambda: worker.children(VALIDATION_CHILD), what="a validation child")
    assert worker.stop() == 0
    assert [attempt.ending for attempt in validation.attempts] == ["finished"]


@pytest.mark.parametrize("own", [("--drain-s", "0"), ()], indirect=True)
def test_a_worker_out_of_time_or_asked_twice_gives_its_lease_back_drained(
    own: tuple[LeaseService, WorkerProcess], request: pytest.FixtureRequest
) -> None:
    service, worker = own
    canary = eventually(lambda: worker.children(CANARY_CHILD), what="a canary")[0]
    os.kill(canary, signal.SIGSTOP)
    validation = service.add("run/step-2")
    eventually(lambda: worker.children(VALIDATION_CHILD), what="a validation child")
    if "--drain-s" not in request.node.callspec.params["own"]:
        worker.process.send_signal(signal.SIGTERM)
        eventually(lambda: service.heartbeats[-1]["is_draining"], what="a draining heartbeat")
        assert validation.attempts[0].ending == ""
    assert worker.stop() == 0
    assert [attempt.ending for attempt in validation.attempts] == ["drained"]


def test_a_verdict_that_nobody_wants_is_not_made(service: LeaseService, worker: WorkerProcess) -> None:
    canary = warm_canary(worker)
    os.kill(canary, signal.SIGSTOP)
    validation = service.add("run/step-2")
    eventually(lambda: worker.children(VALIDATION_CHILD), what="a validation child")
    service.is_wanted = False
    eventually(lambda: validation.attempts and validation.attempts[0].ending, what="the end of the attempt")
    service.is_wanted, is_made = True, bool(validation.reports)
    assert (validation.attempts[0].ending, is_made) == ("drained", False)
    with suppress(ProcessLookupError):  # the load had begun
        os.kill(canary, signal.SIGCONT)
    report_of(validation, worker)  # somebody wants it after all, and the worker lives


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../outside", "path_escape"),
        ("/etc", "path_escape"),
        ("link", "path_escape"),
        ("run/gone", "unknown_layout"),
    ],
)
def test_a_location_outside_the_store_is_never_opened(
    service: LeaseService, worker: WorkerProcess, root: Path, path: str, code: str
) -> None:
    if not (root / "link").exists():
        shutil.copytree(root / "run" / "step-2", root.parent / "outside")
        (root / "link").symlink_to(root.parent / "outside")
    report = report_of(service.add(path, policy=STRUCTURE), worker)
    assert report["verdict"] == "UNKNOWN"
    assert [finding["code"] for finding in report["findings"]] == [code]


def test_a_store_of_a_kind_that_is_not_opened_is_refused_at_the_worker_too(
    service: LeaseService, worker: WorkerProcess
) -> None:
    found = service.add("x", policy=STRUCTURE, store="other", store_url="http://169.254.169.254/latest")
    report = report_of(found, worker)
    assert [finding["code"] for finding in report["findings"]] == ["access_denied"]
    assert report["bytes_read"] == 0


def test_a_manifest_in_storage_proves_no_provenance_in_the_service(
    service: LeaseService, worker: WorkerProcess, root: Path
) -> None:
    copy_checkpoint(root / "run" / "step-2", root / "run" / "told")
    text = leave_manifest(root / "run" / "told", format_name="dcp").read_bytes()
    lying = report_of(service.add("run/told", policy=Policy(settle_s=0, depth=Depth.CONTENT)), worker)
    told = service.add("run/told", policy=Policy(settle_s=0, depth=Depth.CONTENT), manifests={"": text})
    assert lying["provenance"] == "unchanged"
    assert report_of(told, worker)["provenance"] == "proven"

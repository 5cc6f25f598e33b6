"""One worker of two ranks, started by the real torchrun: supervisors that outlive their children."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptguard.model.policy import Policy
from ckptguard.testing.edits import copy_checkpoint
from tests.integration.lease_service import LeaseService, Validation, eventually, lease_service
from tests.integration.worker_process import (
    CANARY_CHILD,
    WorkerProcess,
    running_worker,
    waits_for_its_job,
)

pytestmark = pytest.mark.torch

SAVE = Path(__file__).resolve().parent.parent / "data" / "corpus" / "dcp_torch2_14_1_fsdp2_ws2"
WORLD_SIZE = 2
POLICY = Policy(settle_s=0, jobs=1)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LeaseService, WorkerProcess]]:
    folder = tmp_path_factory.mktemp("group")
    copy_checkpoint(SAVE, folder / "store" / "step-2")
    with (
        lease_service() as service,
        running_worker(service.url, folder / "store", folder / "log", ranks=WORLD_SIZE) as worker,
    ):
        yield service, worker


def supervisors(worker: WorkerProcess) -> list[int]:
    found: list[int] = eventually(
        lambda: len(pids := worker.children("ckptguard_workers")) == WORLD_SIZE and pids,
        what="two supervisors",
        said=worker.said,
    )
    return found


def report_of(validation: Validation, worker: WorkerProcess) -> dict[str, Any]:
    reports: list[dict[str, Any]] = eventually(
        lambda: validation.reports, within_s=120, what="a verdict", said=worker.said
    )
    return reports[0]


def shards_bytes() -> int:
    return sum(path.stat().st_size for path in SAVE.glob("*.distcp"))


def test_two_ranks_load_a_checkpoint_and_read_each_byte_once(
    group: tuple[LeaseService, WorkerProcess],
) -> None:
    service, worker = group
    service.verdict_after_files = 2
    validation = service.add("step-2", policy=POLICY)
    report = report_of(validation, worker)
    service.verdict_after_files = 0
    assert (report["verdict"], report["assurance"]) == ("VALID", "loaded"), report
    content = next(check for check in report["checks"] if check["name"] == "content")
    assert content["bytes_read"] == shards_bytes()
    assert sorted(validation.files) == ["__0_0.distcp", "__1_0.distcp"]
    assert service.capabilities[0]["world_size"] == WORLD_SIZE


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_dead_child_ends_the_load_and_no_supervisor(
    group: tuple[LeaseService, WorkerProcess], rank: int
) -> None:
    service, worker = group
    before = supervisors(worker)
    parent = before[rank]
    hung = eventually(lambda: worker.children(CANARY_CHILD, of=parent), what="a canary")[0]
    eventually(lambda: waits_for_its_job(hung), what="a child that imported torch")
    os.kill(hung, signal.SIGSTOP)
    validation = service.add("step-2", policy=POLICY)
    cold = eventually(
        lambda: set(worker.children(CANARY_CHILD, of=parent)) - {hung}, what="the child in its place"
    )
    os.kill(cold.pop(), signal.SIGKILL)  # the others wait for it
    report = report_of(validation, worker)
    found = {finding["code"]: finding["message"] for finding in report["findings"]}
    assert report["verdict"] == "UNKNOWN"
    assert list(found) == ["canary_crashed"]
    assert "SIGKILL" in found["canary_crashed"]
    assert report["is_retryable"]
    assert supervisors(worker) == before
    assert report_of(service.add("step-2", policy=POLICY), worker)["assurance"] == "loaded"


@pytest.mark.slow
def test_no_rank_outlives_a_torchrun_that_was_killed(tmp_path: Path) -> None:
    with (
        lease_service() as service,
        running_worker(service.url, tmp_path, tmp_path / "log", ranks=WORLD_SIZE) as worker,
    ):
        ranks = supervisors(worker)
        eventually(lambda: all(worker.children(CANARY_CHILD, of=pid) for pid in ranks), what="canaries")
        watched = [os.pidfd_open(pid) for pid in ranks]
        worker.process.kill()
        for descriptor in watched:
            ended, _, _ = select.select([descriptor], [], [], 10.0)
            os.close(descriptor)
            assert ended, "a supervisor still runs"


def test_all_ranks_end_when_torchrun_is_asked_to_stop(group: tuple[LeaseService, WorkerProcess]) -> None:
    _, worker = group
    ranks = [os.pidfd_open(pid) for pid in supervisors(worker)]
    worker.process.send_signal(signal.SIGTERM)
    for descriptor in ranks:
        ended, _, _ = select.select([descriptor], [], [], 30.0)
        os.close(descriptor)
        assert ended, "a supervisor still runs"
    worker.process.wait(30)
    assert "ckptguard" not in worker.said().partition("Traceback")[2], worker.said()

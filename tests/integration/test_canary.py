"""The canary child is a real process: killed, stopped, starved, grouped; its death is an outcome."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckptguard.canary.job import CanaryJob, Group
from ckptguard.canary.outcome import CanaryOutcome, Ending
from ckptguard.canary.spawn import run_canary
from ckptguard.clock import SystemClock
from ckptguard.model.policy import Policy
from ckptguard.model.verdict import CheckStatus, Verdict
from ckptguard.operations.validate import validate
from ckptguard.scan.progress import Progress
from ckptguard.storage.listing import list_folder
from ckptguard.storage.open_url import open_location

pytestmark = pytest.mark.torch

LARGE_RESULTS = "dcp_torch2_13_0_many2000_ws2"
"""The result of one of its shards does not fit into a pipe: a child whose parent is busy cannot finish."""


def job_for(folder: Path, *, group: Group | None = None, device: str = "cpu") -> CanaryJob:
    store, prefix = open_location(str(folder))
    listing = list_folder(store, prefix, max_files=1000)
    return CanaryJob(target=str(folder), listing=listing, group=group, device=device)


def children() -> list[int]:
    """Processes of the module under test whose parent is this process."""
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "ckptguard.canary.child"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(pid) for pid in found.stdout.split()]


def run(job: CanaryJob, *, deadline_s: float = 120.0, at_first_file: object = None) -> CanaryOutcome:
    acted: list[bool] = []

    def on_progress(_: Progress) -> None:
        if at_first_file is not None and not acted:
            acted.append(True)
            for pid in children():
                at_first_file(pid)  # type: ignore[operator]

    return run_canary(job, deadline_s=deadline_s, clock=SystemClock(), progress=on_progress)


def test_a_sound_checkpoint_is_read_to_its_end_and_loaded(corpus_dir: Path) -> None:
    outcome = run(job_for(corpus_dir / "dcp_torch2_13_0_run_ws2_step2"))
    assert (outcome.ending, outcome.reason) == (Ending.DONE, ""), outcome.output_tail
    assert sorted(outcome.scans) == ["__0_0.distcp", "__1_0.distcp"]
    assert all(scan.items == scan.items_loaded > 0 for scan in outcome.scans.values())
    assert outcome.versions["torch"].startswith("2.")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_killed_canary_is_an_outcome_that_names_the_signal(
    corpus_dir: Path, number: signal.Signals
) -> None:
    outcome = run(job_for(corpus_dir / LARGE_RESULTS), at_first_file=lambda pid: os.kill(pid, number))
    assert outcome.ending is Ending.CRASHED
    assert number.name in outcome.reason


def test_a_stopped_canary_is_killed_at_its_deadline_and_leaves_no_process(corpus_dir: Path) -> None:
    started = time.monotonic()
    outcome = run(
        job_for(corpus_dir / LARGE_RESULTS),
        deadline_s=12.0,
        at_first_file=lambda pid: os.kill(pid, signal.SIGSTOP),
    )
    assert outcome.ending is Ending.DEADLINE
    assert time.monotonic() - started < 90, "it was stopped for good"
    assert children() == []


def test_a_canary_without_memory_ends_and_content_is_judged_all_the_same(corpus_dir: Path) -> None:
    """Torch does not fit into 700 MB of address space; the rest of the product does."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (700_000_000, 700_000_000)); "
        "from ckptguard.cli.main import main; sys.exit(main())"
    )
    folder = corpus_dir / "dcp_torch2_13_0_nodist"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", str(folder), "--json", "--settle", "0", "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert {check["name"]: check["status"] for check in report["checks"]}["content"] == "pass"
    codes = {finding["code"] for finding in report["findings"] if finding["check"] == "load"}
    # Where memory runs out is the allocator's choice: torch does not start, or says so itself.
    assert codes <= {"canary_crashed", "load_failed"}
    assert codes
    assert (report["verdict"], done.returncode) == ("UNKNOWN", 20)


def test_content_is_judged_although_the_canary_dies(corpus_dir: Path) -> None:
    killed: list[int] = []

    def kill_once(progress: Progress) -> None:
        if progress.phase == "loading" and not killed:
            killed.extend(children())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    report = validate(str(corpus_dir / LARGE_RESULTS), policy=Policy(settle_s=0), progress=kill_once)
    checks = {check.name.value: check for check in report.checks}
    assert killed
    assert checks["content"].status is CheckStatus.PASS
    assert [finding.code.value for finding in checks["load"].findings] == ["canary_crashed"]
    assert report.judgement.verdict is Verdict.UNKNOWN
    assert report.judgement.is_retryable


@pytest.mark.slow
def test_a_device_that_is_not_there_is_the_machines_fault(corpus_dir: Path) -> None:
    outcome = run(job_for(corpus_dir / "dcp_torch2_13_0_nodist", device="cuda:7"))
    assert outcome.ending in (Ending.CRASHED, Ending.LOAD_FAILED)
    report = validate(str(corpus_dir / "dcp_torch2_13_0_nodist"), policy=Policy(settle_s=0, device="cuda:7"))
    assert report.judgement.verdict is Verdict.UNKNOWN


def test_two_ranks_share_the_shards_and_read_each_byte_once(corpus_dir: Path, tmp_path: Path) -> None:
    folder = corpus_dir / "dcp_torch2_13_0_fsdp2_ws4"
    groups = [
        Group(rank=rank, world_size=2, init_method=f"file://{tmp_path}/rendezvous") for rank in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda group: run(job_for(folder, group=group)), groups))
    assert [outcome.ending for outcome in outcomes] == [Ending.DONE] * 2, outcomes[0].output_tail
    first, second = (set(outcome.scans) for outcome in outcomes)
    assert not first & second
    assert first | second == {path.name for path in folder.glob("*.distcp")}
    alone = run(job_for(folder))
    together = {path: scan for outcome in outcomes for path, scan in outcome.scans.items()}
    assert {path: scan.checksums for path, scan in together.items()} == {
        path: scan.checksums for path, scan in alone.scans.items()
    }


def test_a_child_whose_parent_dies_dies_too(corpus_dir: Path) -> None:
    script = (
        "import os, sys\n"
        "sys.path.insert(0, os.path.dirname(sys.argv[1]))\n"
        "from test_canary import *\n"
        "def die(pid):\n"
        "    os.kill(pid, signal.SIGSTOP)\n"
        "    print(pid, flush=True)\n"
        "    os._exit(0)\n"
        "run(job_for(Path(sys.argv[2])), at_first_file=die)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script, __file__, str(corpus_dir / LARGE_RESULTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    orphan = os.pidfd_open(int(parent.stdout))
    signal.pidfd_send_signal(orphan, signal.SIGCONT)
    ended, _, _ = select.select([orphan], [], [], 20.0)
    os.close(orphan)
    assert ended, "the orphan still runs"


def test_depth_content_starts_no_child_and_needs_no_torch(corpus_dir: Path) -> None:
    code = (
        "import sys; from ckptguard.operations.validate import validate; "
        "from ckptguard.model.policy import Policy, Depth; "
        "report = validate(sys.argv[1], policy=Policy(depth=Depth.CONTENT)); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; "
        "print(report.judgement.assurance)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(corpus_dir / "dcp_torch2_13_0_nodist")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "content"

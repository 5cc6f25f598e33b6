"""kill -9 of any rank of a guarded save: never VALID unless complete and wholly of one save."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.model.finding import FindingCode, Severity
from ckptguard.model.saving_marker import is_saving_marker
from ckptguard.model.verdict import Provenance, Verdict
from tests.kills.guarded_blows import Phase
from tests.kills.guarded_campaign import Campaign
from tests.kills.guarded_folders import LocalFolders
from tests.kills.guarded_races import Races
from tests.kills.guarded_ranks import WORLD, Job, Mode
from tests.kills.guarded_saves import Ranks, Server, running_server

SEED = 20261130

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Fork ranks."""
    with running_server() as running:
        yield running


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(Mode.SYNC, marks=pytest.mark.slow),
        Mode.THREAD,
        pytest.param(Mode.PROCESS, marks=pytest.mark.slow),
    ],
)
def test_no_kill_in_any_phase_makes_a_manifest_bless_a_mixture(
    mode: Mode, server: Server, tmp_path: Path
) -> None:
    campaign = Campaign(server, LocalFolders(tmp_path / "saved"), tmp_path / "jobs", seed=SEED, rows=512)
    struck = [campaign.strike(blow) for blow in campaign.stepped_blows(mode, each=1)]
    assert {each.phase for each in struck} == set(Phase), f"seed {SEED}"
    assert [each for each in struck if each.wrong] == [], f"seed {SEED}"


def test_nor_does_one_at_a_random_moment(server: Server, tmp_path: Path) -> None:
    campaign = Campaign(server, LocalFolders(tmp_path / "saved"), tmp_path / "jobs", seed=SEED, rows=512)
    struck = [campaign.strike(blow) for blow in campaign.random_blows(Mode.THREAD, count=2)]
    assert [each for each in struck if each.wrong] == [], f"seed {SEED}"


_SHARDS_WRITTEN = "create .metadata.tmp"
_COMMITTED = "create the draft of the manifest"


def _job(tmp_path: Path, name: str, *, variant: int, stops_before: str = "") -> Job:
    return Job(
        folder=str(tmp_path / "step-2"),
        step=2,
        variant=variant,
        scratch=str(tmp_path / name),
        rows=64,
        stops_before={"0": stops_before} if stops_before else {},
    )


def _stopped(server: Server, job: Job) -> Ranks:
    ranks = server.start(job)
    ranks.wait_until_ready()
    ranks.wait_until_stopped(0)
    return ranks


def _kill(*jobs: Ranks) -> None:
    for ranks in jobs:
        for rank in range(WORLD):
            ranks.kill(rank)
        ranks.wait()


def _verdict(tmp_path: Path) -> tuple[Verdict, Provenance, set[FindingCode]]:
    report = LocalFolders(tmp_path).report("step-2")
    assert report is not None
    doubts = {finding.code for finding in report.findings if finding.severity is Severity.UNKNOWN}
    return report.judgement.verdict, report.provenance, doubts


def _markers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "step-2").iterdir() if is_saving_marker(path.name)]


def test_two_saves_at_once_of_which_neither_leaves_a_manifest_are_not_valid(
    server: Server, tmp_path: Path
) -> None:
    restarted = _stopped(server, _job(tmp_path, "restarted", variant=1, stops_before=_SHARDS_WRITTEN))
    orphan = _stopped(server, _job(tmp_path, "orphan", variant=2, stops_before=_COMMITTED))
    _kill(restarted, orphan)
    unknown = (Verdict.UNKNOWN, Provenance.UNPROVEN, {FindingCode.UNFINISHED_MARKER})
    assert _verdict(tmp_path) == unknown


def test_a_save_that_dies_alone_before_its_manifest_is_as_good_as_stocks(
    server: Server, tmp_path: Path
) -> None:
    _kill(_stopped(server, _job(tmp_path, "killed", variant=1, stops_before=_COMMITTED)))
    assert len(_markers(tmp_path)) == 1
    assert _verdict(tmp_path) == (Verdict.VALID, Provenance.UNPROVEN, set())


def test_a_save_that_died_condemns_none_that_comes_after(server: Server, tmp_path: Path) -> None:
    _kill(_stopped(server, _job(tmp_path, "killed", variant=1, stops_before=_SHARDS_WRITTEN)))
    save({"w": torch.arange(8.0)}, storage_writer=FileSystemWriter(tmp_path / "step-2"), no_dist=True)
    assert len(_markers(tmp_path)) == 1
    assert _verdict(tmp_path) == (Verdict.VALID, Provenance.UNPROVEN, set())
    server.save(_job(tmp_path, "next", variant=2))
    assert _markers(tmp_path) == []
    assert _verdict(tmp_path) == (Verdict.VALID, Provenance.PROVEN, set())


def test_two_jobs_in_one_folder_are_never_blessed_as_one_save(server: Server, tmp_path: Path) -> None:
    races = Races(server, tmp_path, seed=SEED, rows=128)
    raced = [races.race() for _ in range(5)]
    assert [each for each in raced if each.is_wrong] == [], f"seed {SEED}"


@pytest.mark.slow
def test_nor_is_a_restarted_job_beside_the_orphan_of_a_killed_one(server: Server, tmp_path: Path) -> None:
    races = Races(server, tmp_path, seed=SEED)
    raced = [races.race(Mode.PROCESS) for _ in range(2)]
    assert [each for each in raced if each.is_wrong] == [], f"seed {SEED}"

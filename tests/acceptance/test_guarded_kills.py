"""kill -9 of any rank of a guarded save: never VALID unless complete and wholly of one save."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kills.guarded_races import Races
from tests.kills.guarded_ranks import Mode
from tests.kills.guarded_saves import Campaign, Server, running_server

SEED = 20261130

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Fork ranks."""
    with running_server() as running:
        yield running


@pytest.mark.parametrize("mode", [pytest.param(Mode.SYNC, marks=pytest.mark.slow), Mode.THREAD])
def test_no_kill_makes_a_manifest_bless_a_mixture(mode: Mode, server: Server, tmp_path: Path) -> None:
    campaign = Campaign(server, tmp_path, seed=SEED, rows=512)
    blows = [*campaign.aimed_blows(mode)[:4], *campaign.random_blows(mode, 4)]
    left = [campaign.strike(blow) for blow in blows]
    assert [each for each in left if each.wrong] == [], f"seed {SEED}"


@pytest.mark.slow
def test_no_kill_of_a_process_that_saves_does_either(server: Server, tmp_path: Path) -> None:
    campaign = Campaign(server, tmp_path, seed=SEED, rows=512)
    blows = [*campaign.aimed_blows(Mode.PROCESS)[:2], *campaign.random_blows(Mode.PROCESS, 2)]
    left = [campaign.strike(blow) for blow in blows]
    assert [each for each in left if each.wrong] == [], f"seed {SEED}"


def test_two_jobs_in_one_folder_are_never_blessed_as_one_save(server: Server, tmp_path: Path) -> None:
    races = Races(server, tmp_path, seed=SEED, rows=128)
    raced = [races.race() for _ in range(5)]
    assert [each for each in raced if each.is_wrong] == [], f"seed {SEED}"


@pytest.mark.slow
def test_nor_is_a_restarted_job_beside_the_orphan_of_a_killed_one(server: Server, tmp_path: Path) -> None:
    races = Races(server, tmp_path, seed=SEED)
    raced = [races.race(Mode.PROCESS) for _ in range(2)]
    assert [each for each in raced if each.is_wrong] == [], f"seed {SEED}"

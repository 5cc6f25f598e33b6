"""kill -9 of the ranks of a guarded save to a real S3 server, in every phase of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.s3_server import S3Server
from tests.kills.guarded_blows import Phase
from tests.kills.guarded_buckets import BucketFolders
from tests.kills.guarded_campaign import Campaign
from tests.kills.guarded_ranks import Mode
from tests.kills.guarded_saves import Server, running_server

pytestmark = [
    pytest.mark.torch,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]
SEED = 20261130


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Fork ranks."""
    with running_server("s3fs") as running:
        yield running


@pytest.mark.parametrize("mode", [Mode.SYNC, Mode.THREAD])
def test_no_kill_in_any_phase_makes_a_manifest_bless_a_mixture_of_objects(
    mode: Mode, s3_server: S3Server, server: Server, tmp_path: Path
) -> None:
    folders = BucketFolders(s3_server, f"killed-{mode.name}")
    campaign = Campaign(server, folders, tmp_path, seed=SEED, rows=128)
    struck = [campaign.strike(blow) for blow in campaign.stepped_blows(mode, each=1)]
    assert {each.phase for each in struck} == set(Phase), f"seed {SEED}"
    assert [each for each in struck if each.wrong] == [], f"seed {SEED}"

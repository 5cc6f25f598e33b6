"""kill -9 of the ranks of a guarded save to a real S3 server."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs

from ckptguard.model.policy import Depth, Policy
from ckptguard.operations.place import Place
from ckptguard.operations.validate import validate_in
from tests.integration.s3_server import S3Server
from tests.kills.guarded_ranks import Job, Mode
from tests.kills.guarded_saves import Blow, Phase, Server, judge, running_server
from tests.kills.guarded_saves import Place as Where

pytestmark = [
    pytest.mark.torch,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]
ROWS = 512
KILLS = 5
SEED = 20261130
_POLICY = Policy(depth=Depth.CONTENT, settle_s=0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Fork ranks."""
    with running_server("s3fs") as running:
        yield running


def _options(s3: S3Server) -> dict[str, Any]:
    return {"endpoint_url": s3.endpoint, **s3.options()}


def test_no_kill_makes_a_manifest_bless_a_mixture_of_objects(
    s3_server: S3Server, server: Server, tmp_path: Path
) -> None:
    chance = random.Random(SEED)  # noqa: S311 - chance, no secret
    filesystem = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False, **s3_server.options())
    other = f"{s3_server.bucket}/killed-other/step-1"
    seconds = _save(server, s3_server, other, tmp_path / "other", step=1)
    wrong = []
    for number in range(KILLS):
        folder = f"{s3_server.bucket}/killed-{number}/latest"
        _save(server, s3_server, folder, tmp_path / f"first-{number}", step=1)
        ranks = chance.choice([(0,), (1,), (0, 1), (1, 0)])
        blow = Blow(mode=Mode.SYNC, place=Where.USED, ranks=ranks, after_s=chance.uniform(0, 1.2) * seconds)
        _strike(server, _job(s3_server, folder, tmp_path / f"second-{number}", step=2), blow)
        copy = tmp_path / f"copy-{number}"
        filesystem.get(folder, str(copy), recursive=True)
        left = judge(blow, Phase.SHARDS, copy, rows=ROWS)
        there = validate_in(Place.of(f"s3://{folder}", options=s3_server.options()), policy=_POLICY)
        assert (there.judgement.verdict, there.provenance) == (left.verdict, left.provenance)
        wrong += [left] if left.wrong else []
    assert wrong == [], f"seed {SEED}"
    kept = validate_in(Place.of(f"s3://{other}", options=s3_server.options()), policy=_POLICY)
    assert (kept.judgement.verdict.value, kept.provenance.value) == ("VALID", "proven")


def _strike(server: Server, job: Job, blow: Blow) -> None:
    assert blow.after_s is not None
    ranks = server.start(job)
    began_s = ranks.wait_until_ready()
    time.sleep(max(0.0, began_s + blow.after_s - time.monotonic()))
    for rank in blow.ranks:
        ranks.kill(rank)
    ranks.wait()


def _save(server: Server, s3: S3Server, folder: str, scratch: Path, *, step: int) -> float:
    """Save undisturbed, and return how long it took."""
    ranks = server.start(_job(s3, folder, scratch, step=step))
    began_s = ranks.wait_until_ready()
    ranks.wait()
    assert ranks.trace()[-1] == "returned", (scratch / "log.0").read_text()
    return time.monotonic() - began_s


def _job(s3: S3Server, folder: str, scratch: Path, *, step: int) -> Job:
    return Job(folder=f"s3://{folder}", step=step, scratch=str(scratch), rows=ROWS, options=_options(s3))

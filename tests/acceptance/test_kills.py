"""kill -9 of anything at any moment: nothing acknowledged is lost, no verdict is doubled or wrong."""

from pathlib import Path

import pytest

from ckptguard.testing.edits import copy_checkpoint, flip_bit
from tests.kills.campaign import Campaign, Plan

SEED = 20261129


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_kill_loses_doubles_or_falsifies_a_verdict(kind: str, tmp_path: Path, own_corpus: Path) -> None:
    good = copy_checkpoint(own_corpus / "dcp_torch2_14_1_fsdp2_ws2", tmp_path / "good")
    damaged = copy_checkpoint(own_corpus / "dcp_torch2_14_1_fsdp2_ws2", tmp_path / "damaged")
    shard = damaged / "__0_0.distcp"
    flip_bit(damaged, shard.name, offset=shard.stat().st_size // 2, bit=3)
    plan = Plan(kind=kind, kills=8, seed=SEED, good=good, damaged=damaged, folder=tmp_path / "service")
    outcome = Campaign(plan).run()
    assert sum(outcome.kills.values()) == 8
    assert len(outcome.acknowledged) >= 8

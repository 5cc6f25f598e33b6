"""Random damage, our verdict beside a stock load: everything harmful is found (reduced; `make prove`)."""

from pathlib import Path

import pytest

from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing.campaign import run_campaign
from ckptguard.testing.saves import BASE, TORCH_SAVE

pytestmark = pytest.mark.torch

_POLICY = Policy(depth=Depth.CONTENT, settle_s=0, jobs=1)


def _judge(folder: Path) -> Verdict:
    return validate(str(folder), policy=_POLICY).judgement.verdict


@pytest.mark.parametrize(
    ("save", "format_name", "seeds"),
    [(BASE, "dcp", range(100_000, 100_200)), (TORCH_SAVE, "torch_save", range(100_000, 100_100))],
    ids=["dcp", "torch_save"],
)
def test_every_harmful_change_is_found(save: str, format_name: str, seeds: range, saves_dir: Path) -> None:
    tally = run_campaign(saves_dir / save, format_name=format_name, seeds=seeds, judge=_judge)
    assert tally.count()["stock_wrong"] > 0, "stock torch notices all of this by itself?"
    assert tally.missed == ()
    assert tally.false_alarms == 0


def test_with_a_save_time_manifest_every_change_is_found(saves_dir: Path) -> None:
    seeds = range(200_000, 200_060)
    tally = run_campaign(
        saves_dir / BASE, format_name="dcp", seeds=seeds, judge=_judge, has_manifest=True, suffixes=("",)
    )
    assert {result.trial.file for result in tally.results} > {".metadata"}
    assert tally.unseen == ()
    assert tally.false_alarms == 0

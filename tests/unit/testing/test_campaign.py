"""A campaign tells what it does not find, and what stock does not notice."""

from pathlib import Path

import pytest

from ckptguard.model.verdict import Verdict
from ckptguard.testing.campaign import Tally, run_campaign
from ckptguard.testing.saves import BASE, TORCH_SAVE
from ckptguard.testing.stock_worker import StockOutcome

pytestmark = pytest.mark.torch
_SEEDS = range(60)


def _blind(_folder: Path) -> Verdict:
    return Verdict.VALID


@pytest.fixture(scope="module", params=[(BASE, "dcp"), (TORCH_SAVE, "torch_save")], ids=lambda pair: pair[1])
def blind_tally(request: pytest.FixtureRequest, saves_dir: Path) -> Tally:
    save, format_name = request.param
    return run_campaign(saves_dir / save, format_name=format_name, seeds=_SEEDS, judge=_blind)


def test_a_blind_judge_misses_what_stock_loads_wrong(blind_tally: Tally) -> None:
    tally, counts = blind_tally, blind_tally.count()
    assert counts["all"] == len(_SEEDS)
    assert counts["missed"] == len(tally.missed) == counts["stock_wrong"] + counts["stock_raises"]
    assert counts["stock_wrong"] > len(_SEEDS) // 4, "stock finds payload damage now: tell the README"
    assert counts["stock_raises"] > 0
    assert tally.false_alarms == 0


def test_flips_in_payload_are_what_stock_never_notices(blind_tally: Tally) -> None:
    outcomes = {result.stock for result in blind_tally.results if result.area == "payload"}
    assert outcomes == {StockOutcome.WRONG}


@pytest.mark.slow
def test_condemning_everything_is_a_false_alarm(saves_dir: Path) -> None:
    tally = run_campaign(
        saves_dir / BASE, format_name="dcp", seeds=range(10), judge=lambda _: Verdict.INVALID
    )
    assert tally.false_alarms == 2
    assert not tally.missed
    assert not tally.unseen

"""Whatever a stock reader does with damage, the campaign goes on and says it."""

import os
import signal
from pathlib import Path

import pytest

from ckptguard.testing.stock_worker import StockOutcome, Values, is_equal, run_trials
from ckptguard.testing.trial import Trial, TrialKind

pytestmark = pytest.mark.torch
_SAVED = b"abcdef"


def _load(folder: Path) -> Values:
    """Behave by the byte that was changed: die, raise, load wrong, not notice."""
    data = (folder / "file").read_bytes()
    if data[0] != _SAVED[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    if data[1] != _SAVED[1]:
        msg = "damaged"
        raise ValueError(msg)
    return {"value": data[2]}


def _flip(offset: int) -> Trial:
    return Trial(seed=0, kind=TrialKind.BIT_FLIP, file="file", offset=offset, length_bytes=1)


def test_a_crash_is_an_outcome_and_the_next_trial_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(_SAVED)
    outcomes = run_trials(_load, tmp_path, [_flip(0), _flip(1), _flip(0), _flip(2), _flip(3)])
    assert outcomes == [
        StockOutcome.CRASHES,
        StockOutcome.RAISES,
        StockOutcome.CRASHES,
        StockOutcome.WRONG,
        StockOutcome.RIGHT,
    ]
    assert (tmp_path / "file").read_bytes() == _SAVED


def test_values_are_compared_bit_by_bit() -> None:
    import torch  # noqa: PLC0415 - late, as in the kit

    nan, zero = torch.tensor([float("nan")]), torch.tensor([0.0])
    assert is_equal(nan, nan.clone())
    assert not is_equal(zero, -zero)
    assert not is_equal(zero, zero.double())
    assert not is_equal(1, 1.0)

"""What a failure now would cost is (now - newest VALID save) x GPUs x price, and unknown stays unknown."""

from datetime import UTC, datetime, timedelta

import pytest

from ckptguard_api.domain.exposure import Exposure, SavePoint, exposure_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def _saved(hours_ago: float, step: int = 1200) -> SavePoint:
    return SavePoint(step=step, created_at=NOW - timedelta(hours=hours_ago))


def test_six_hours_of_8000_gpus_at_three_dollars_are_144000_dollars() -> None:
    exposure = exposure_of(now=NOW, newest_valid=_saved(6), newest_step=1900, gpus=8000, usd_per_gpu_hour=3.0)
    assert exposure == Exposure(seconds=21_600.0, steps=700, gpu_hours=48_000.0, usd=144_000.0)


def test_without_a_valid_checkpoint_nothing_is_known() -> None:
    exposure = exposure_of(now=NOW, newest_valid=None, newest_step=1900, gpus=8, usd_per_gpu_hour=3.0)
    assert exposure == Exposure(seconds=None, steps=None, gpu_hours=None, usd=None)


@pytest.mark.parametrize(
    ("gpus", "price", "gpu_hours", "usd"),
    [(None, 3.0, None, None), (8, None, 8.0, None), (None, None, None, None), (8, 0.0, 8.0, 0.0)],
)
def test_what_the_operator_did_not_tell_is_none_and_not_zero(
    gpus: int | None, price: float | None, gpu_hours: float | None, usd: float | None
) -> None:
    exposure = exposure_of(
        now=NOW, newest_valid=_saved(1), newest_step=None, gpus=gpus, usd_per_gpu_hour=price
    )
    assert exposure == Exposure(seconds=3600.0, steps=None, gpu_hours=gpu_hours, usd=usd)


def test_a_writers_clock_that_runs_ahead_makes_no_negative_cost() -> None:
    exposure = exposure_of(
        now=NOW, newest_valid=_saved(-1, step=9), newest_step=5, gpus=8, usd_per_gpu_hour=3.0
    )
    assert exposure == Exposure(seconds=0.0, steps=0, gpu_hours=0.0, usd=0.0)


def test_money_is_told_to_the_cent() -> None:
    exposure = exposure_of(
        now=NOW, newest_valid=_saved(1 / 3), newest_step=None, gpus=7, usd_per_gpu_hour=1.99
    )
    assert exposure.usd == 4.64

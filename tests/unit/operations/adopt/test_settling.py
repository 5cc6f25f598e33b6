"""At rest: by the times of its files, or by what was seen."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ckptguard.operations.adopt.found import Found
from ckptguard.operations.adopt.settling import Settling
from ckptguard.testing.fakes import FakeClock
from tests.unit.operations.adopt.adopting import NOW


def found(*, version: str = "1", newest_at: datetime | None = NOW) -> Found:
    return Found(
        run="r",
        step=1,
        folder="step-1",
        formats=("dcp",),
        doubt=None,
        num_files=1,
        bytes_total=1,
        newest_at=newest_at,
        created_at=newest_at,
        metadata=(),
        absent=0,
        version=version,
        save_version=version,
    )


@pytest.mark.parametrize(("age_s", "is_settled"), [(0, False), (29.9, False), (30, True), (-3600, False)])
def test_the_age_of_the_newest_file_settles_at_first_sight(age_s: float, is_settled: bool) -> None:  # noqa: FBT001
    settling = Settling(30, FakeClock())
    each = found(newest_at=NOW - timedelta(seconds=age_s))
    settling.look([each])
    assert settling.is_settled(each) is is_settled
    assert not settling.is_watched(each)


def test_without_times_only_what_was_seen_counts() -> None:
    clock = FakeClock()
    settling, each = Settling(30, clock), found(newest_at=None)
    settling.look([each])
    clock.advance(29)
    settling.look([each])
    assert (settling.is_settled(each), settling.left_s(each)) == (False, 1)
    clock.advance(1)
    settling.look([each])
    assert settling.is_settled(each)
    assert settling.is_watched(each)


def test_a_change_begins_anew_and_so_does_a_folder_that_was_away() -> None:
    clock = FakeClock()
    settling, each = Settling(30, clock), found(newest_at=None)
    settling.look([each])
    clock.advance(60)
    changed = replace(each, version="2")
    settling.look([changed])
    assert settling.left_s(changed) == 30
    settling.look([])
    clock.advance(60)
    settling.look([changed])
    assert settling.left_s(changed) == 30


def test_no_settle_time_is_no_wait() -> None:
    settling, each = Settling(0, FakeClock()), found(newest_at=NOW + timedelta(days=1))
    settling.look([each])
    assert settling.is_settled(each)

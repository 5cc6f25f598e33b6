"""When an attempt counts, and how long one may take."""

from datetime import UTC, datetime, timedelta

import pytest

from ckptguard.model.service import AttemptEnding
from ckptguard_api.domain.attempt_rules import (
    MAX_ATTEMPTS,
    MAX_DEADLINE_S,
    MIN_DEADLINE_S,
    backoff_s,
    deadline_of_told_size,
    deadline_s,
    ending_of_expired,
    is_counted,
    is_given_up,
    measured_rate,
)
from ckptguard_api.domain.claim_order import LONGEST_EVERY, is_turn_of_longest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("ending", list(AttemptEnding))
def test_an_attempt_that_stored_a_new_result_never_counts(ending: AttemptEnding) -> None:
    assert not is_counted(ending, new_files=1)


@pytest.mark.parametrize("ending", list(AttemptEnding))
def test_only_failures_count(ending: AttemptEnding) -> None:
    costs = {AttemptEnding.EXPIRED, AttemptEnding.STALLED, AttemptEnding.FAILED}
    assert is_counted(ending, new_files=0) == (ending in costs)


def test_a_drained_attempt_is_tried_again_at_once_and_a_failed_one_later_and_later() -> None:
    assert backoff_s(AttemptEnding.DRAINED, counted_attempts=2) == 0
    waits = [backoff_s(AttemptEnding.FAILED, counted_attempts=count) for count in range(1, 9)]
    assert waits == sorted(waits)
    assert waits[0] == 10
    assert backoff_s(AttemptEnding.FAILED, counted_attempts=10_000) == waits[-1] == 300


def test_a_deadline_is_four_times_reading_within_bounds() -> None:
    assert deadline_s(bytes_total=10**12, bytes_per_s=1e8) == pytest.approx(40_000)
    assert deadline_s(bytes_total=1, bytes_per_s=1e8) == MIN_DEADLINE_S
    assert deadline_s(bytes_total=2**62, bytes_per_s=1.0) == MAX_DEADLINE_S
    assert deadline_s(bytes_total=10**12, bytes_per_s=None) > deadline_s(bytes_total=10**12, bytes_per_s=1e8)
    assert deadline_s(bytes_total=None, bytes_per_s=1e9) == 86_400


def test_a_size_that_only_the_worker_found_shortens_the_deadline_and_never_lengthens_it() -> None:
    def seconds(bytes_told: int) -> float:
        deadline = deadline_of_told_size(NOW, bytes_told=bytes_told, bytes_per_s=1e8)
        return (deadline - NOW).total_seconds()

    assert seconds(10**11) == pytest.approx(4_000)
    assert seconds(1) == MIN_DEADLINE_S
    assert seconds(2**62) == 86_400


def test_nobody_tries_for_ever() -> None:
    assert is_given_up(attempts=3, counted_attempts=3, max_counted_attempts=3)
    assert is_given_up(attempts=MAX_ATTEMPTS, counted_attempts=0, max_counted_attempts=3)
    assert not is_given_up(attempts=MAX_ATTEMPTS - 1, counted_attempts=2, max_counted_attempts=3)


def test_small_validations_do_not_measure_a_store() -> None:
    assert measured_rate(None, bytes_read=1000, seconds_reading=1.0) is None
    assert measured_rate(None, bytes_read=10**9, seconds_reading=2.0) == 5e8
    assert measured_rate(1e8, bytes_read=10**9, seconds_reading=1.0) == pytest.approx(3.7e8)
    assert measured_rate(1e8, bytes_read=10**9, seconds_reading=0.0) == 1e8


def test_an_end_has_the_reason_that_holds() -> None:
    def ending(*, progress_s: float, deadline_s: float) -> AttemptEnding:
        return ending_of_expired(
            NOW,
            progress_at=NOW + timedelta(seconds=progress_s),
            stall_after_s=300,
            deadline_at=NOW + timedelta(seconds=deadline_s),
        )[0]

    assert ending(progress_s=-10, deadline_s=100) is AttemptEnding.EXPIRED
    assert ending(progress_s=-300, deadline_s=100) is AttemptEnding.STALLED
    assert ending(progress_s=-10, deadline_s=0) is AttemptEnding.STALLED


@pytest.mark.parametrize("worker_id", range(1, 20))
def test_one_claim_in_eight_of_every_worker_takes_what_has_waited_longest(worker_id: int) -> None:
    turns = [is_turn_of_longest(worker_id=worker_id, claims=count) for count in range(LONGEST_EVERY)]
    assert turns.count(True) == 1

"""When an attempt counts, when the next may start, when it is over, and when nobody tries again."""

from datetime import datetime, timedelta
from typing import Final

from ckptguard.model.service import AttemptEnding

MAX_ATTEMPTS: Final = 100
"""Of one validation, whatever they cost: drained and advancing ones end some day, too."""

DEADLINE_FACTOR: Final = 4.0
MIN_DEADLINE_S: Final = 900.0
MAX_DEADLINE_S: Final = 30 * 86_400.0
UNMEASURED_BYTES_PER_S: Final = 25e6
"""Of a store that no validation has measured: slow on purpose; whoever hangs is stopped as stalled."""

UNKNOWN_SIZE_DEADLINE_S: Final = 86_400.0

_FIRST_BACKOFF_S: Final = 10.0
_MAX_BACKOFF_S: Final = 300.0
_MIN_MEASURED_BYTES: Final = 64 << 20
_WEIGHT_OF_NEWEST: Final = 0.3
MAX_BYTES_PER_S: Final = 1e12
"""No store is faster; what a worker tells is not believed beyond it, lest deadlines shrink to nothing."""
_COSTLY: Final = frozenset({AttemptEnding.EXPIRED, AttemptEnding.STALLED, AttemptEnding.FAILED})


def is_counted(ending: AttemptEnding, *, new_files: int) -> bool:
    """Say whether an attempt costs one of the few: it failed, and stored no new file result."""
    return ending in _COSTLY and new_files == 0


def is_given_up(*, attempts: int, counted_attempts: int, max_counted_attempts: int) -> bool:
    """Say whether nobody tries again, so that the service itself answers UNKNOWN."""
    return counted_attempts >= max_counted_attempts or attempts >= MAX_ATTEMPTS


def backoff_s(ending: AttemptEnding, *, counted_attempts: int) -> float:
    """Return seconds until the next attempt may start.

    A drained worker is healthy, and so is what it was working on: the next may start at once.
    """
    if ending is AttemptEnding.DRAINED:
        return 0.0
    doublings = min(16, max(0, counted_attempts - 1))
    return min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * float(1 << doublings))


def retry_pause_s(retries: int, *, first_s: float, max_s: float) -> float:
    """Return seconds until the service asks again for a verdict that time may change: doubled each time.

    Args:
        retries: How often it has asked again already.
        first_s: The first pause.
        max_s: The longest one.
    """
    return min(max_s, first_s * float(1 << min(16, retries)))


def deadline_s(*, bytes_total: int | None, bytes_per_s: float | None) -> float:
    """Return seconds that one attempt may take: four times those that reading alone takes (design §7)."""
    if bytes_total is None:
        return UNKNOWN_SIZE_DEADLINE_S
    rate = bytes_per_s or UNMEASURED_BYTES_PER_S
    return min(MAX_DEADLINE_S, max(MIN_DEADLINE_S, DEADLINE_FACTOR * bytes_total / rate))


def deadline_of_told_size(started_at: datetime, *, bytes_told: int, bytes_per_s: float | None) -> datetime:
    """Return the deadline of an attempt whose size only its worker found out.

    Never later than the one that it began with, whatever is told: its worker goes by that one.
    """
    allowed_s = deadline_s(bytes_total=bytes_told, bytes_per_s=bytes_per_s)
    return started_at + timedelta(seconds=min(allowed_s, UNKNOWN_SIZE_DEADLINE_S))


def lease_end(
    now: datetime, *, lease_s: float, progress_at: datetime, stall_after_s: float, deadline_at: datetime
) -> datetime:
    """Return when a lease heard of just now ends: silence, standstill or deadline, whichever is first.

    One time says all three: a fence compares with one column, and forgets none of them.
    """
    return min(now + timedelta(seconds=lease_s), progress_at + timedelta(seconds=stall_after_s), deadline_at)


def ending_of_expired(
    now: datetime, *, progress_at: datetime, stall_after_s: float, deadline_at: datetime
) -> tuple[AttemptEnding, str]:
    """Say how an attempt ended whose lease is over, and why, for a person."""
    if now >= deadline_at:
        return AttemptEnding.STALLED, "not finished at its deadline"
    if now >= progress_at + timedelta(seconds=stall_after_s):
        return AttemptEnding.STALLED, f"no progress for {stall_after_s:g} s"
    return AttemptEnding.EXPIRED, "no heartbeat came in time"


def measured_rate(previous: float | None, *, bytes_read: int, seconds_reading: float) -> float | None:
    """Return a store's rate after one more validation, in bytes per second; None: still not known.

    Little validations measure the start of a process, not the store, and change nothing.
    """
    if bytes_read < _MIN_MEASURED_BYTES or seconds_reading <= 0:
        return previous
    rate = MAX_BYTES_PER_S
    if bytes_read < seconds_reading * MAX_BYTES_PER_S:
        rate = bytes_read / seconds_reading
    return rate if previous is None else previous + _WEIGHT_OF_NEWEST * (rate - previous)

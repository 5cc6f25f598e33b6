"""Whole histories of a service: the resume target is never a bad one, and the newest VALID is never lost.

python -m tests.property.service_histories SEED   # one of them again, told step by step
python -m pytest -m slow tests/property/test_service_histories.py -n 2   # at length

Of the 100,000 histories of `make prove` these carry 2,000; the choice alone, over rows, carries all the
others (tests/property/test_resume_histories.py): one whole history costs as much as several hundred of those.
"""

import pytest

from tests.property.service_histories import run_seed

_IN_MAKE_TEST = 100
_AT_ONCE = 20
_LONG = range(1_000_000, 1_002_000)
_LONG_AT_ONCE = 200
_LONG_STEPS = 30
_STATES = {"valid", "valid_below", "pending", "none_valid", "none_exist", "unknown_run"}
_REASONS = {
    *("invalid", "unknown", "not_validated", "queued", "running", "announced", "incomplete", "quarantined"),
    *("suspect", "below_assurance", "below_provenance", "other_device", "too_old"),
}


@pytest.mark.parametrize("first", range(0, _IN_MAKE_TEST, _AT_ONCE))
def test_no_bad_target_is_given_and_the_newest_valid_is_never_lost(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        run_seed(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", _LONG[::_LONG_AT_ONCE])
def test_no_bad_target_is_given_at_length(first: int) -> None:
    seen: set[str] = set()
    for seed in range(first, first + _LONG_AT_ONCE):
        seen |= run_seed(seed, steps=_LONG_STEPS)
    assert seen == _STATES | _REASONS, "every answer and every reason occurs"

"""Whatever dies, is late, comes twice or fails half way: one verdict each, and the right one in force."""

import pytest

from tests.property.leasing_simulation import run_seed

_IN_MAKE_TEST = 500
_IN_MAKE_PROVE = 10_000
_AT_ONCE = 50


@pytest.mark.parametrize("first", range(0, _IN_MAKE_TEST, _AT_ONCE))
def test_leases_and_verdicts_keep_their_laws_whatever_happens(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        run_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(_IN_MAKE_TEST, _IN_MAKE_PROVE, _IN_MAKE_TEST))
def test_leases_and_verdicts_keep_their_laws_at_length(first: int) -> None:
    for seed in range(first, first + _IN_MAKE_TEST):
        run_seed(seed)

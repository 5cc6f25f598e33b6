"""Which branch the saves of a process belong to."""

from collections.abc import Iterator

import pytest

from ckptguard.integrations import incidents
from ckptguard.integrations.known_start import KnownStart, forget_start, known_start, note_start

_HANDED = {"CKPTGUARD_RUN": "r", "CKPTGUARD_RESUME_BRANCH": "3"}


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    forget_start()
    incidents.forget()
    yield
    forget_start()


def test_nobody_told_anything() -> None:
    assert known_start({}) is None


def test_a_launcher_hands_down_run_and_branch() -> None:
    assert known_start(_HANDED) == KnownStart(run="r", branch=3)


@pytest.mark.parametrize("missing", _HANDED)
def test_half_of_it_is_nothing(missing: str) -> None:
    assert known_start({name: text for name, text in _HANDED.items() if name != missing}) is None


@pytest.mark.parametrize("branch", [4, None])
def test_what_the_job_asked_by_itself_is_newer_than_what_its_launcher_was_told(branch: int | None) -> None:
    note_start("r", branch)
    assert known_start(_HANDED) == KnownStart(run="r", branch=branch)


def test_a_branch_is_that_of_its_own_run_only() -> None:
    start = KnownStart(run="r", branch=3)
    assert [start.branch_of(run) for run in ("r", "other", None)] == [3, None, None]


def test_a_variable_that_holds_no_number_hurts_no_save() -> None:
    assert known_start(_HANDED | {"CKPTGUARD_RESUME_BRANCH": "main"}) is None
    assert incidents.counters() == {"start_unreadable": 1}

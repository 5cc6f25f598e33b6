"""Passes in a row: until nothing more has to be waited for; or for ever."""

from collections.abc import Sequence
from random import Random
from typing import Final

from ckptguard.clock import Clock
from ckptguard.errors import CkptGuardError, ObjectNotFoundError, StoreError
from ckptguard.operations.adopt.adoption import Adoption
from ckptguard.operations.adopt.news import News, NewsKind, Tell

MAX_ROUNDS: Final = 4
"""Looks of `adopt_once`, at most a settle time apart: a save that goes on is left to the next run."""
MAX_BACKOFF_S: Final = 300.0
JITTER: Final = 0.1
"""Share of an interval by which it varies, so that many watchers do not list at the same moment."""
_SLACK_S: Final = 0.001
_MAX_DOUBLINGS: Final = 4


def adopt_once(adoption: Adoption, clock: Clock, tell: Tell) -> None:
    """Register everything that is there, or comes to rest soon.

    Raises:
        CkptGuardError: As `Adoption.run_pass`.
    """
    passed = adoption.run_pass()
    for _ in range(MAX_ROUNDS - 1):
        if passed.wait_s is None:
            break
        clock.sleep(passed.wait_s + _SLACK_S)
        passed = adoption.run_pass()
    for news in passed.standing:
        tell(news)


def watch(adoption: Adoption, clock: Clock, tell: Tell, *, every_s: float, jitter: Random) -> None:
    """Register what comes, until the process is ended from outside.

    An outage of the store or the service is told once, and again when it is over; meanwhile the
    intervals grow.

    Args:
        adoption: The passes.
        clock: Sleeps.
        tell: Takes what happens, each thing once.
        every_s: Between two passes.
        jitter: Varies the intervals.

    Raises:
        CkptGuardError: The very first pass was refused in a way that time does not change.
    """
    said = _Said(tell)
    failures, is_proven = 0, False
    while True:
        try:
            standing = adoption.run_pass(is_watching=True).standing
        except CkptGuardError as error:
            if not (is_proven or error.is_retryable or isinstance(error, ObjectNotFoundError)):
                raise
            failures += 1
            said.trouble(error)
        else:
            failures, is_proven = 0, True
            said.well(standing)
        backoff_s = min(every_s * 2 ** min(failures, _MAX_DOUBLINGS), MAX_BACKOFF_S)
        clock.sleep(max(every_s, backoff_s) * jitter.uniform(1 - JITTER, 1 + JITTER))


class _Said:
    """Tells what stands when it is new, and not again while it stays.

    Args:
        tell: Takes it.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: frozenset[News] = frozenset()
        self._seen: frozenset[News] = frozenset()
        self._trouble: type[CkptGuardError] | None = None

    def trouble(self, error: CkptGuardError) -> None:
        """Tell of an outage, once."""
        kind = StoreError if isinstance(error, StoreError) else CkptGuardError
        if self._trouble is not kind:
            self._tell(News(kind=NewsKind.TROUBLE, reason=str(error)))
        self._trouble = kind

    def well(self, standing: Sequence[News]) -> None:
        """Tell that an outage is over, and what was not so at the look before.

        Of pointers, what is so at two looks in a row: a trainer moves its pointer a moment after
        the step is there.
        """
        if self._trouble is not None:
            self._tell(News(kind=NewsKind.RECOVERED))
        self._trouble = None
        lasting = [each for each in standing if each.kind is not NewsKind.POINTER or each in self._seen]
        for each in dict.fromkeys(lasting):
            if each not in self._told:
                self._tell(each)
        self._told, self._seen = frozenset(lasting), frozenset(standing)

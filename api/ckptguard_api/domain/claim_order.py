"""Which validation a worker is given next.

Someone waits for it; the newest unvalidated of each run; older ones; retries; scrubs. Within each, projects
and runs take turns (whose last claim is longest ago), and within a run the newest checkpoint comes first.
Newest first alone would let a busy run starve the rest, so one claim in eight of every worker takes what has
waited longest: every validation is older than all but finitely many, hence each is claimed in the end.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from ckptguard.model.service import ValidationReason

LONGEST_EVERY: Final = 8
"""One claim in so many takes what has waited longest."""


class Tier(IntEnum):
    """The column `validations.tier`."""

    NEWEST = 1  # of the open ones of its run, and nothing newer of the run is VALID
    OLDER = 2
    RETRY = 3  # never before what nobody looked at yet: a store that is away would cost all others
    SCRUB = 4


_TIERS: Final[Mapping[ValidationReason, Tier]] = {
    ValidationReason.RETRY: Tier.RETRY,
    ValidationReason.SCRUB: Tier.SCRUB,
}


def tier_of(reason: ValidationReason) -> Tier:
    """Return where a validation begins that is asked for because of this."""
    return _TIERS.get(reason, Tier.OLDER)


def is_turn_of_longest(*, worker_id: int, claims: int) -> bool:
    """Say whether this claim of a worker takes what has waited longest.

    Args:
        worker_id: Shifts the turns: workers that live for fewer than eight claims take theirs too.
        claims: How many attempts the worker was given so far.
    """
    return (worker_id + claims) % LONGEST_EVERY == 0

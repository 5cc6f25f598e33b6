"""A worker gives its attempt back."""

from typing import Final

from ckptguard.model.service import AttemptEnding
from ckptguard_api.domain.actor import Actor
from ckptguard_api.leasing.endings import end_without_verdict
from ckptguard_api.leasing.fence import find_own_attempt, require_held
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.services import Services

MAX_REASON_CHARS: Final = 4096

GIVEN_BACK: Final = frozenset({AttemptEnding.DRAINED, AttemptEnding.FAILED})


def release(services: Services, key: LeaseKey, *, ending: AttemptEnding, reason: str, actor: Actor) -> None:
    """End an attempt without a verdict.

    Told twice, it is ended once; released after it was cancelled, nothing is left to do.

    Args:
        services: Of this process.
        key: The lease's.
        ending: `drained` costs nothing; `failed` counts unless new file results were stored.
        reason: For a person; cut to `MAX_REASON_CHARS`.
        actor: Whose token it is.

    Raises:
        LeaseLostError: The lease is over, or is not the caller's.
    """
    assert ending in GIVEN_BACK  # noqa: S101 - the route lets no other through
    with services.database.write() as tx:
        attempt, _ = find_own_attempt(tx, key, actor=actor)
        if attempt.ending in {ending.value, AttemptEnding.CANCELLED.value}:
            return
        held = require_held(tx, key, actor=actor)
        end_without_verdict(
            tx, held, ending=ending, reason=reason[:MAX_REASON_CHARS], settings=services.settings, actor=actor
        )

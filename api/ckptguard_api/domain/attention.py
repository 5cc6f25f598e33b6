"""Which runs a person should look at first, and why: one rule after the other, the worst first."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from ckptguard.model.service import Lifecycle
from ckptguard.model.verdict import Verdict

LONG_PENDING_S: Final = 3600.0
"""A newest save that waits longer for its verdict needs somebody: there may be no worker for it."""


class Attention(StrEnum):
    """Why a run needs a person, worst first; the last two do not."""

    RESTARTS_FAILING = "restarts_failing"  # from the older checkpoint too: no launcher goes on by itself
    NOTHING_VALID = "nothing_valid"  # there were verdicts, and none lets a launcher resume
    NEWEST_INVALID = "newest_invalid"
    UNPROTECTED = "unprotected"  # for longer than the run's policy allows
    HELD = "held"  # a newer one is suspect or quarantined
    NEWEST_UNKNOWN = "newest_unknown"  # and the service does not ask again by itself
    NEVER_CAME = "never_came"  # the last save was announced, and nothing was heard of it any more
    PENDING_LONG = "pending_long"
    STEP_WENT_BACK = "step_went_back"  # somebody resumed without a report
    FINE = "fine"
    INACTIVE = "inactive"

    @property
    def rank(self) -> int:
        """Position in the order; 0 is looked at first."""
        return _RANKS[self]

    @property
    def needs_person(self) -> bool:
        """Whether somebody should look."""
        return self not in {Attention.FINE, Attention.INACTIVE}


_RANKS: Final = {attention: rank for rank, attention in enumerate(Attention)}


class Sight(NamedTuple):
    """A checkpoint, as far as it matters here; columns of `checkpoints`, as they are.

    A tuple (ADR 0012), and its moments are seconds since 1970: of a thousand runs several are compared,
    and few are shown.

    Args:
        created_s: Of the save.
        registered_s: None: not complete, or not told here.
        validation_state: Of its open validation; None: none is open.
        has_retry: The service asks for its verdict again by itself.
    """

    id: int
    branch: int
    step: int
    created_s: float
    assurance: str | None = None
    lifecycle: str = Lifecycle.REGISTERED.value
    registered_s: float | None = None
    verdict: str | None = None
    validation_state: str | None = None
    has_retry: bool = False

    @property
    def order(self) -> tuple[int, int, float, int]:
        """Its place in the run; a higher one is newer."""
        return (self.branch, self.step, self.created_s, self.id)

    @property
    def created_at(self) -> datetime:
        """Of the save."""
        return datetime.fromtimestamp(self.created_s, UTC)

    @property
    def waits_since_s(self) -> float | None:
        """When it was registered, if its first verdict is still to come and was asked for."""
        is_waiting = self.verdict is None and self.validation_state is not None
        return self.registered_s if is_waiting else None


class RunFacts(NamedTuple):
    """What is known of a run; None: there is none.

    Args:
        made_s: When the run was made.
        last: Newest checkpoint of any lifecycle.
        newest: Newest that is complete or being saved.
        valid: Newest that a resume may use.
        invalid: Newest that is INVALID, and complete.
        unknown: Newest that is UNKNOWN, and complete.
        held: Suspect or quarantined, and complete.
        unprotected_after_s: What the policy allows; None: anything.
    """

    made_s: float
    last: Sight | None = None
    newest: Sight | None = None
    valid: Sight | None = None
    invalid: Sight | None = None
    unknown: Sight | None = None
    held: Sequence[Sight] = ()
    unprotected_after_s: float | None = None
    restarts_failing_s: float | None = None
    step_went_back_s: float | None = None

    @property
    def active_s(self) -> float:
        """When something last happened."""
        saved_s = self.made_s if self.last is None else self.last.created_s
        return max(self.made_s, saved_s, self.restarts_failing_s or self.made_s)

    def is_above_valid(self, sight: Sight | None) -> bool:
        """Say whether a checkpoint is newer than the newest that a resume may use."""
        return sight is not None and (self.valid is None or sight.order > self.valid.order)


class Judged(NamedTuple):
    """Why a run is where it is in the list.

    Args:
        attention: The first rule that holds.
        about: The checkpoint that it speaks of.
        since_s: Since when it holds.
    """

    attention: Attention
    about: Sight | None = None
    since_s: float | None = None

    @property
    def since(self) -> datetime | None:
        """Since when it holds."""
        return None if self.since_s is None else datetime.fromtimestamp(self.since_s, UTC)


def judge(facts: RunFacts, *, now_s: float, active_s: float) -> Judged:
    """Return the first rule that holds of a run.

    Args:
        facts: Of the run.
        now_s: The time.
        active_s: A run without a save for longer is over, whatever state it was left in.
    """
    if now_s - facts.active_s > active_s:
        return Judged(attention=Attention.INACTIVE, about=facts.last, since_s=facts.active_s)
    for rule in _RULES:
        judged = rule(facts, now_s)
        if judged is not None:
            return judged
    return Judged(attention=Attention.FINE, about=facts.newest)


def _restarts_failing(facts: RunFacts, _now_s: float) -> Judged | None:
    if facts.restarts_failing_s is None:
        return None
    return Judged(attention=Attention.RESTARTS_FAILING, since_s=facts.restarts_failing_s)


def _nothing_valid(facts: RunFacts, _now_s: float) -> Judged | None:
    if facts.valid is not None:
        return None
    is_below = facts.newest is not None and facts.newest.verdict == Verdict.VALID
    seen = [facts.invalid, facts.unknown, facts.newest if is_below else None]
    about = max((sight for sight in seen if sight is not None), key=lambda sight: sight.order, default=None)
    return None if about is None else Judged(attention=Attention.NOTHING_VALID, about=about)


def _newest_invalid(facts: RunFacts, _now_s: float) -> Judged | None:
    if facts.invalid is None or not facts.is_above_valid(facts.invalid):
        return None
    return Judged(attention=Attention.NEWEST_INVALID, about=facts.invalid, since_s=facts.invalid.created_s)


def _unprotected(facts: RunFacts, now_s: float) -> Judged | None:
    since_s = facts.made_s if facts.valid is None else facts.valid.created_s
    if facts.unprotected_after_s is None or now_s - since_s <= facts.unprotected_after_s:
        return None
    return Judged(attention=Attention.UNPROTECTED, about=facts.valid, since_s=since_s)


def _held(facts: RunFacts, _now_s: float) -> Judged | None:
    newer = [sight for sight in facts.held if facts.is_above_valid(sight)]
    if not newer:
        return None
    return Judged(attention=Attention.HELD, about=max(newer, key=lambda sight: sight.order))


def _unknown(facts: RunFacts, _now_s: float) -> Judged | None:
    unknown = facts.unknown
    if unknown is None or not facts.is_above_valid(unknown):
        return None
    if unknown.has_retry or unknown.validation_state is not None:
        return None
    return Judged(attention=Attention.NEWEST_UNKNOWN, about=unknown, since_s=unknown.created_s)


def _never_came(facts: RunFacts, _now_s: float) -> Judged | None:
    if facts.last is None or facts.last.lifecycle != Lifecycle.INCOMPLETE:
        return None
    return Judged(attention=Attention.NEVER_CAME, about=facts.last, since_s=facts.last.created_s)


def _pending_long(facts: RunFacts, now_s: float) -> Judged | None:
    since_s = None if facts.newest is None else facts.newest.waits_since_s
    if since_s is None or now_s - since_s <= LONG_PENDING_S:
        return None
    return Judged(attention=Attention.PENDING_LONG, about=facts.newest, since_s=since_s)


def _step_went_back(facts: RunFacts, _now_s: float) -> Judged | None:
    if facts.step_went_back_s is None:
        return None
    return Judged(attention=Attention.STEP_WENT_BACK, since_s=facts.step_went_back_s)


_RULES: Final[tuple[Callable[[RunFacts, float], Judged | None], ...]] = (
    _restarts_failing,
    _nothing_valid,
    _newest_invalid,
    _unprotected,
    _held,
    _unknown,
    _never_came,
    _pending_long,
    _step_went_back,
)

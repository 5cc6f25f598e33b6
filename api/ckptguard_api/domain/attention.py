"""Which runs a person should look at first, and why: one rule after the other, the worst first."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A checkpoint, as far as it matters here; columns of `checkpoints`, as they are.

    Moments are seconds since 1970: of every run several are compared, and few are shown.

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
    lifecycle: str = Lifecycle.REGISTERED.value
    registered_s: float | None = None
    verdict: str | None = None
    assurance: str | None = None
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
    def waits_since(self) -> datetime | None:
        """When it was registered, if its first verdict is still to come and was asked for."""
        if self.verdict is not None or self.validation_state is None or self.registered_s is None:
            return None
        return datetime.fromtimestamp(self.registered_s, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run; None: there is none.

    Args:
        made_at: When the run was made.
        last: Newest checkpoint of any lifecycle.
        newest: Newest that is complete or being saved.
        valid: Newest that a resume may use.
        invalid: Newest that is INVALID, and complete.
        unknown: Newest that is UNKNOWN, and complete.
        held: Suspect or quarantined, and complete.
        unprotected_after_s: What the policy allows; None: anything.
    """

    made_at: datetime
    last: Sight | None = None
    newest: Sight | None = None
    valid: Sight | None = None
    invalid: Sight | None = None
    unknown: Sight | None = None
    held: Sequence[Sight] = field(default=())
    unprotected_after_s: float | None = None
    restarts_failing_at: datetime | None = None
    step_went_back_at: datetime | None = None

    @property
    def active_at(self) -> datetime:
        """When something last happened."""
        moments = [self.made_at, self.restarts_failing_at, self.last.created_at if self.last else None]
        return max(moment for moment in moments if moment is not None)

    def is_above_valid(self, sight: Sight | None) -> bool:
        """Say whether a checkpoint is newer than the newest that a resume may use."""
        return sight is not None and (self.valid is None or sight.order > self.valid.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Why a run is where it is in the list.

    Args:
        attention: The first rule that holds.
        about: The checkpoint that it speaks of.
        since: Since when it holds.
    """

    attention: Attention
    about: Sight | None = None
    since: datetime | None = None


def judge(facts: RunFacts, *, now: datetime, active_s: float) -> Judged:
    """Return the first rule that holds of a run.

    Args:
        facts: Of the run.
        now: The time.
        active_s: A run without a save for longer is over, whatever state it was left in.
    """
    if now - facts.active_at > timedelta(seconds=active_s):
        return Judged(attention=Attention.INACTIVE, about=facts.last, since=facts.active_at)
    rules = (_restarts_failing, _nothing_valid, _newest_invalid, _unprotected, _held, _unknown, _never_came)
    later = (_pending_long, _step_went_back)
    found = (rule(facts, now) for rule in (*rules, *later))
    fine = Judged(attention=Attention.FINE, about=facts.newest)
    return next((judged for judged in found if judged is not None), fine)


def _restarts_failing(facts: RunFacts, _now: datetime) -> Judged | None:
    if facts.restarts_failing_at is None:
        return None
    return Judged(attention=Attention.RESTARTS_FAILING, since=facts.restarts_failing_at)


def _nothing_valid(facts: RunFacts, _now: datetime) -> Judged | None:
    if facts.valid is not None:
        return None
    is_below = facts.newest is not None and facts.newest.verdict == Verdict.VALID
    seen = [facts.invalid, facts.unknown, facts.newest if is_below else None]
    about = max((sight for sight in seen if sight is not None), key=lambda sight: sight.order, default=None)
    return None if about is None else Judged(attention=Attention.NOTHING_VALID, about=about)


def _newest_invalid(facts: RunFacts, _now: datetime) -> Judged | None:
    if facts.invalid is None or not facts.is_above_valid(facts.invalid):
        return None
    return Judged(attention=Attention.NEWEST_INVALID, about=facts.invalid, since=facts.invalid.created_at)


def _unprotected(facts: RunFacts, now: datetime) -> Judged | None:
    since = facts.made_at if facts.valid is None else facts.valid.created_at
    if facts.unprotected_after_s is None or (now - since).total_seconds() <= facts.unprotected_after_s:
        return None
    return Judged(attention=Attention.UNPROTECTED, about=facts.valid, since=since)


def _held(facts: RunFacts, _now: datetime) -> Judged | None:
    newer = [sight for sight in facts.held if facts.is_above_valid(sight)]
    if not newer:
        return None
    return Judged(attention=Attention.HELD, about=max(newer, key=lambda sight: sight.order))


def _unknown(facts: RunFacts, _now: datetime) -> Judged | None:
    unknown = facts.unknown
    if unknown is None or not facts.is_above_valid(unknown):
        return None
    if unknown.has_retry or unknown.validation_state is not None:
        return None
    return Judged(attention=Attention.NEWEST_UNKNOWN, about=unknown, since=unknown.created_at)


def _never_came(facts: RunFacts, _now: datetime) -> Judged | None:
    if facts.last is None or facts.last.lifecycle != Lifecycle.INCOMPLETE:
        return None
    return Judged(attention=Attention.NEVER_CAME, about=facts.last, since=facts.last.created_at)


def _pending_long(facts: RunFacts, now: datetime) -> Judged | None:
    waits_since = None if facts.newest is None else facts.newest.waits_since
    if waits_since is None or (now - waits_since).total_seconds() <= LONG_PENDING_S:
        return None
    return Judged(attention=Attention.PENDING_LONG, about=facts.newest, since=waits_since)


def _step_went_back(facts: RunFacts, _now: datetime) -> Judged | None:
    if facts.step_went_back_at is None:
        return None
    return Judged(attention=Attention.STEP_WENT_BACK, since=facts.step_went_back_at)

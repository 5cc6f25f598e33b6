"""What an answer of the service means to a launcher: one pure function over every state and every flag."""

from dataclasses import dataclass

from ckptguard.client.answers import ResumeAnswer, Target
from ckptguard.model.resume import Ending, OnUnavailable
from ckptguard.model.service import ResumeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What a caller accepts besides a VALID as asked.

    Args:
        run: Whose checkpoint is asked for.
        is_below_accepted: Take a VALID below what was asked.
        is_fresh_allowed: A run without any checkpoint may start from nothing.
        fresh_despite: Start from nothing though checkpoints exist, or the run is unknown; counts
            only if it is the run's name.
        on_unavailable: What to take while the service gives no answer.
    """

    run: str
    is_below_accepted: bool = False
    is_fresh_allowed: bool = False
    fresh_despite: str | None = None
    on_unavailable: OnUnavailable = OnUnavailable.FAIL

    @property
    def is_fresh_despite(self) -> bool:
        """Say whether the caller named the run whose checkpoints are to be ignored."""
        return self.fresh_despite is not None and self.fresh_despite == self.run


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do.

    Args:
        ending: How it ends if `target` is seen whole, or there is none.
        target: Whose path is printed; None: standard output stays empty.
        must_be_audited: Ends so only once the service has written it down.
    """

    ending: Ending
    target: Target | None = None
    must_be_audited: bool = False


def decide(answer: ResumeAnswer | None, flags: Flags, *, has_dropped: bool = False) -> Decision:
    """Decide what an answer means (design §9).

    Args:
        answer: Of the service; None: there was none.
        flags: What the caller accepts.
        has_dropped: Checkpoints were taken out of the question because they were not seen whole
            here: an answer without one no longer says that none exists.

    Guarantees: a path without a flag only for a VALID as asked; a fresh start never over an
        answer that time can change; a cached answer is none.
    """
    if answer is None or answer.is_cached:
        return Decision(ending=Ending.TRY_AGAIN)
    if answer.state is ResumeState.VALID:
        return Decision(ending=Ending.PROVEN, target=answer.target)
    below = answer.below if flags.is_below_accepted else None
    if answer.state is ResumeState.VALID_BELOW:
        return Decision(ending=Ending.BELOW, target=below)
    if answer.state is ResumeState.PENDING:
        is_taken = below is not None and not answer.asked.require_newest
        return Decision(ending=Ending.BELOW, target=below) if is_taken else Decision(ending=Ending.TRY_AGAIN)
    return _decide_without_valid(answer.state, flags, has_dropped=has_dropped)


def _decide_without_valid(state: ResumeState, flags: Flags, *, has_dropped: bool) -> Decision:
    if state is ResumeState.NONE_EXIST and not has_dropped:
        return Decision(ending=Ending.FRESH if flags.is_fresh_allowed else Ending.EMPTY)
    if flags.is_fresh_despite:
        return Decision(ending=Ending.FRESH, must_be_audited=True)
    is_unknown = state is ResumeState.UNKNOWN_RUN and not has_dropped
    return Decision(ending=Ending.UNKNOWN_RUN if is_unknown else Ending.NONE_USABLE)

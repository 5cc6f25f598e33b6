"""The choice of a resume target, as one pure function.

`choose` is the law. SQL only narrows down what it has to look at (`repositories.resume`): the choice from
that part is the choice from all.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from ckptguard.model.service import Lifecycle, ResumeState, SupersededBy, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.resume import Asked, Candidate, Choice, PassedOver, Reason, reaches

_LISTED: Final = frozenset({Lifecycle.ANNOUNCED, Lifecycle.INCOMPLETE, Lifecycle.REGISTERED})


def choose(candidates: Iterable[Candidate], asked: Asked, *, now: datetime) -> Choice:
    """Choose the newest checkpoint that is VALID as asked, and say why no newer one is.

    `pending` goes before `valid_below`: while one can still become VALID as asked, a launcher that waits
    loses nothing, and the weaker one stands in `below` for a launcher that takes it.
    `none_exist` is said of a run without any checkpoint alone: where there ever was one, a start from
    scratch would be a loss.

    Args:
        candidates: Checkpoints of one run, in any order.
        asked: What it must be.
        now: The time, for ages and for announcements that are kept alive.
    """
    everything = sorted(candidates, key=lambda candidate: candidate.order, reverse=True)
    scope = [candidate for candidate in everything if asked.is_about(candidate.step)]
    newest = next((candidate for candidate in scope if is_valid(candidate, asked, now=now)), None)
    newer = scope if newest is None else scope[: scope.index(newest)]
    is_open = any(can_become_valid(candidate, asked, now=now) for candidate in newer)
    target = None if asked.require_newest and is_open else newest
    below = None if newest is not None else _best_below(scope, asked, now=now)
    return Choice(
        state=_state(target, below, is_open=is_open, is_empty=not everything),
        target=target,
        below=below,
        passed_over=tuple(
            PassedOver(candidate=candidate, reason=reason_against(candidate, asked))
            for candidate in newer
            if is_listed(candidate, asked)
        ),
        is_open=is_open,
    )


def is_valid(candidate: Candidate, asked: Asked, *, now: datetime) -> bool:
    """Say whether it may be the target: VALID, not held, its bytes still its own, and as strong as asked."""
    return _is_usable(candidate, asked, now=now) and (
        candidate.assurance is not None and candidate.assurance.rank >= asked.min_assurance.rank
    )


def can_become_valid(candidate: Candidate, asked: Asked, *, now: datetime) -> bool:
    """Say whether a verdict that is still to come may make it VALID as asked."""
    if candidate.is_held:
        return False
    if candidate.lifecycle is Lifecycle.ANNOUNCED:
        return candidate.keep_alive_until is not None and candidate.keep_alive_until > now
    if not _has_its_bytes(candidate, asked):
        return False
    if candidate.validation_state is not None:
        return candidate.open_depth is None or reaches(candidate.open_depth, asked.min_assurance)
    return candidate.verdict is None or _is_tried_again(candidate, asked)


def _is_tried_again(candidate: Candidate, asked: Asked) -> bool:
    if candidate.next_try_at is None:
        return False
    return candidate.retry_depth is None or reaches(candidate.retry_depth, asked.min_assurance)


def is_listed(candidate: Candidate, asked: Asked) -> bool:
    """Say whether it is named where it is passed over: not if its bytes are gone, or the run left it."""
    return candidate.lifecycle in _LISTED or _has_its_bytes(candidate, asked)


def reason_against(candidate: Candidate, asked: Asked) -> Reason:
    """Return the one reason that decides; the first that holds, what cannot change by waiting first."""
    rules = (
        (Reason.INCOMPLETE, candidate.lifecycle is Lifecycle.INCOMPLETE),
        (Reason.QUARANTINED, candidate.is_quarantined),
        (Reason.SUSPECT, candidate.is_suspect),
        (Reason.ANNOUNCED, candidate.lifecycle is Lifecycle.ANNOUNCED),
        (Reason.INVALID, candidate.verdict is Verdict.INVALID),
        (Reason.RUNNING, candidate.validation_state is ValidationState.RUNNING),
        (Reason.QUEUED, candidate.validation_state is ValidationState.QUEUED),
        (Reason.NOT_VALIDATED, candidate.verdict is None),
        (Reason.UNKNOWN, candidate.verdict is Verdict.UNKNOWN),
        (Reason.BELOW_ASSURANCE, _rank(candidate) < asked.min_assurance.rank),
        (Reason.BELOW_PROVENANCE, not _is_origin_good(candidate, asked)),
        (Reason.OTHER_DEVICE, not _is_device_good(candidate, asked)),
    )
    return next((reason for reason, holds in rules if holds), Reason.TOO_OLD)


def _state(
    target: Candidate | None, below: Candidate | None, *, is_open: bool, is_empty: bool
) -> ResumeState:
    if target is not None:
        return ResumeState.VALID
    if is_empty:
        return ResumeState.NONE_EXIST
    if is_open:
        return ResumeState.PENDING
    return ResumeState.NONE_VALID if below is None else ResumeState.VALID_BELOW


def _best_below(scope: Sequence[Candidate], asked: Asked, *, now: datetime) -> Candidate | None:
    usable = [candidate for candidate in scope if _is_usable(candidate, asked, now=now)]
    return max(usable, key=lambda candidate: (_rank(candidate), candidate.order), default=None)


def _rank(candidate: Candidate) -> int:
    return -1 if candidate.assurance is None else candidate.assurance.rank


def _is_usable(candidate: Candidate, asked: Asked, *, now: datetime) -> bool:
    too_old_before = asked.too_old_before(now)
    return (
        candidate.verdict is Verdict.VALID
        and not candidate.is_held
        and _has_its_bytes(candidate, asked)
        and _is_origin_good(candidate, asked)
        and _is_device_good(candidate, asked)
        and (
            too_old_before is None
            or (candidate.validated_at is not None and candidate.validated_at >= too_old_before)
        )
    )


def _has_its_bytes(candidate: Candidate, asked: Asked) -> bool:
    if candidate.lifecycle is Lifecycle.REGISTERED:
        return True
    # A rollback leaves the bytes alone, so they are there for whoever names the step.
    is_rolled_back = candidate.superseded_by is SupersededBy.ROLLED_BACK and candidate.is_complete
    return asked.step is not None and candidate.lifecycle is Lifecycle.SUPERSEDED and is_rolled_back


def _is_origin_good(candidate: Candidate, asked: Asked) -> bool:
    return asked.min_provenance is None or candidate.provenance in asked.provenances


def _is_device_good(candidate: Candidate, asked: Asked) -> bool:
    if asked.device is None or candidate.device is None:
        return asked.device is None
    rest = candidate.device.removeprefix(asked.device)
    return rest == "" or (rest != candidate.device and rest[0] in ": ")


def changes_at(candidates: Iterable[Candidate], asked: Asked, *, now: datetime) -> datetime | None:
    """Return when the choice may become another by the passing of time alone; None: never.

    Announcements end, and validations become too old.
    """
    given = list(candidates)
    ends = [one.keep_alive_until for one in given if one.lifecycle is Lifecycle.ANNOUNCED]
    if asked.max_age_s is not None:
        age = timedelta(seconds=asked.max_age_s)
        ends += [one.validated_at + age for one in given if one.validated_at is not None]
    return min((end for end in ends if end is not None and end >= now), default=None)

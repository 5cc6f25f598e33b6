"""How an attempt ends without a verdict, and what becomes of its validation."""

from datetime import timedelta

from ckptguard.model.service import AttemptEnding, EventKind, ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.attempt_rules import backoff_s, is_counted, is_given_up
from ckptguard_api.leasing.fence import Held
from ckptguard_api.leasing.given_up import give_up
from ckptguard_api.leasing.queue import is_wanted, subject_of
from ckptguard_api.leasing.tiers import set_tiers
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.file_results import delete_file_results
from ckptguard_api.repositories.leases import end_attempt_row, find_attempt
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.repositories.validations import lock_validation, set_state
from ckptguard_api.settings import Settings


def end_without_verdict(
    tx: Transaction,
    held: Held,
    *,
    ending: AttemptEnding,
    reason: str,
    settings: Settings,
    actor: Actor = SERVICE,
) -> None:
    """End an attempt, and queue its validation again, give it up, or take it back."""
    attempt = find_attempt(tx, held.lease.attempt_id)
    assert attempt is not None  # noqa: S101 - its lease lives
    counts = is_counted(ending, new_files=attempt.new_files)
    end_attempt_row(tx, held.lease, ending=ending, reason=reason, is_counted=counts)
    counted = held.validation.counted_attempts + counts
    data = {"attempt": attempt.number, "ending": ending.value, "reason": reason, "is_counted": counts}
    record(tx, EventKind.VALIDATION_ATTEMPT_ENDED, about=subject_of(held.validation), data=data, actor=actor)
    set_state(
        tx,
        held.validation,
        ValidationState.QUEUED,
        counted_attempts=counted,
        not_before=tx.now + timedelta(seconds=backoff_s(ending, counted_attempts=counted)),
    )
    _decide(tx, held, counted=counted, reason=reason, settings=settings)
    set_tiers(tx, held.run.id)
    touch_run(tx, held.run.id)


def _decide(tx: Transaction, held: Held, *, counted: int, reason: str, settings: Settings) -> None:
    if not is_wanted(held.checkpoint):
        set_state(tx, held.validation, ValidationState.CANCELLED, finished_at=tx.now)
        delete_file_results(tx, held.validation.id)
        why = {"why": f"the checkpoint is {held.checkpoint.lifecycle}"}
        record(tx, EventKind.VALIDATION_CANCELLED, about=subject_of(held.validation), data=why)
        return
    is_over = is_given_up(
        attempts=held.validation.attempts,
        counted_attempts=counted,
        max_counted_attempts=settings.max_counted_attempts,
    )
    if is_over:
        current = lock_validation(tx, held.validation.id)
        give_up(tx, held.checkpoint, current, last_reason=reason, settings=settings)

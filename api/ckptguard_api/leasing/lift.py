"""An operator lifts damage from bytes that a second worker found sound (design §3)."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from ckptguard.errors import ConflictError
from ckptguard.model.finding import Basis
from ckptguard.model.service import EventKind
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.in_force import put_in_force
from ckptguard_api.leasing.tiers import set_tiers
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.repositories.verdicts import VerdictRow, damage_on_record, standing_of, verdicts_of


def lift_damage(tx: Transaction, checkpoint: Row[Any], *, actor: Actor, reason: str) -> None:
    """Put the VALID of another worker in force over damage of the same bytes.

    The caller has locked the checkpoint's run and the checkpoint. Every verdict of damage on record for
    these bytes is lifted with it, or none.

    Raises:
        ConflictError: The verdict in force is not INVALID for damage, or no other worker found the same
            bytes VALID after it.
    """
    if checkpoint.verdict != Verdict.INVALID.value or checkpoint.basis != Basis.DAMAGE.value:
        msg = "no damage to lift: the verdict in force is another"
        raise ConflictError(msg)
    given = verdicts_of(tx, checkpoint.id)
    in_force = next(row for row in given if row.validation_id == checkpoint.verdict_validation_id)
    damage = [row for row in damage_on_record(tx, checkpoint.id) if _is_same(row, in_force)]
    valid = _second_opinion(given, damage)
    if valid is None:
        msg = "damage is lifted only after another worker found the same bytes VALID: revalidate it first"
        raise ConflictError(msg)
    for row in damage:
        about = Subject(
            project_id=checkpoint.project_id,
            run_id=checkpoint.run_id,
            checkpoint_id=checkpoint.id,
            validation_id=row.validation_id,
        )
        data = {"lifted": "damage", "reason": reason, "second_opinion": valid.validation_id}
        record(tx, EventKind.CHECKPOINT_RELEASED, about=about, data=data, actor=actor)
    put_in_force(tx, checkpoint, valid.validation_id, actor=actor, why=reason)
    set_tiers(tx, checkpoint.run_id)
    touch_run(tx, checkpoint.run_id)


def _second_opinion(given: Sequence[VerdictRow], damage: Sequence[VerdictRow]) -> VerdictRow | None:
    """Return the newest VALID of the same bytes, younger than the damage and by none of its workers."""
    accusers = {row.worker_id for row in damage}
    newest = max(row.validation_id for row in damage)
    for row in given:
        is_other = row.worker_id is not None and row.worker_id not in accusers
        is_later = row.validation_id > newest
        if row.verdict == Verdict.VALID.value and is_other and is_later and _is_same(row, damage[0]):
            return row
    return None


def _is_same(row: VerdictRow, other: VerdictRow) -> bool:
    return standing_of(row).seen.is_same_as(standing_of(other).seen)

"""Pin, quarantine, release: what an operator says about a checkpoint, with a reason, in the audit."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, update

from ckptguard.errors import ConflictError
from ckptguard.model.service import EventKind, Hold, Lifecycle
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.reasons import checked_reason
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.lift import lift_damage
from ckptguard_api.repositories.checkpoint_list import HOLD_COLUMNS, CheckpointRow, find_checkpoint
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.restarts import settle_failures
from ckptguard_api.repositories.runs import lock_run, touch_run
from ckptguard_api.repositories.validations import lock_checkpoint
from ckptguard_api.services import Services
from ckptguard_api.tables import checkpoints


class Releasable(StrEnum):
    """What can be released; damage only by its name."""

    PINNED = "pinned"
    QUARANTINED = "quarantined"
    SUSPECT = "suspect"
    DAMAGE = "damage"


def locked_checkpoint(tx: Transaction, project_id: int, checkpoint_id: int) -> Row[Any]:
    """Lock the run of a checkpoint, then the checkpoint, and return it.

    Raises:
        NotFoundError: There is none; one of another project is none.
    """
    lock_run(tx, find_checkpoint(tx, project_id, checkpoint_id).run_id)
    return lock_checkpoint(tx, checkpoint_id)


def hold_checkpoint(
    services: Services, *, project_id: int, checkpoint_id: int, hold: Hold, reason: str, actor: Actor
) -> CheckpointRow:
    """Set a hold; one that is set already stays as it is, with its first reason.

    Raises:
        NotFoundError: There is no such checkpoint.
        ConflictError: It is deleted.
        InvalidRequestError: The reason cannot be kept.
    """
    why = checked_reason(reason)
    with services.database.write() as tx:
        row = locked_checkpoint(tx, project_id, checkpoint_id)
        if row.lifecycle == Lifecycle.DELETED:
            msg = "nothing to hold: the checkpoint is deleted"
            raise ConflictError(msg)
        if not getattr(row, HOLD_COLUMNS[hold]):
            _set(tx, row, [hold], is_held=True)
            data = {"hold": hold.value, "reason": why}
            record(tx, EventKind.CHECKPOINT_HELD, actor=actor, about=about_checkpoint(row), data=data)
        return find_checkpoint(tx, project_id, checkpoint_id)


def release_checkpoint(
    services: Services,
    *,
    project_id: int,
    checkpoint_id: int,
    what: Releasable | None,
    reason: str,
    actor: Actor,
) -> CheckpointRow:
    """Lift a hold, or all; what is not set stays so. Damage is lifted only by its name.

    Raises:
        NotFoundError: There is no such checkpoint.
        ConflictError: Damage that no second worker contradicts.
        InvalidRequestError: The reason cannot be kept.
    """
    why = checked_reason(reason)
    with services.database.write() as tx:
        row = locked_checkpoint(tx, project_id, checkpoint_id)
        if what is Releasable.DAMAGE:
            lift_damage(tx, row, actor=actor, reason=why)
        else:
            _release(tx, row, _set_holds(row, what), reason=why, actor=actor)
        return find_checkpoint(tx, project_id, checkpoint_id)


def about_checkpoint(row: Row[Any]) -> Subject:
    """Return what an event about this checkpoint is about."""
    return Subject(project_id=row.project_id, run_id=row.run_id, checkpoint_id=row.id)


def _set_holds(row: Row[Any], what: Releasable | None) -> list[Hold]:
    wanted = list(Hold) if what is None else [Hold(what.value)]
    return [hold for hold in wanted if getattr(row, HOLD_COLUMNS[hold])]


def _release(tx: Transaction, row: Row[Any], holds: Sequence[Hold], *, reason: str, actor: Actor) -> None:
    if not holds:
        return
    _set(tx, row, holds, is_held=False)
    if Hold.SUSPECT in holds:
        # Else the next failure would find those before it, and make it suspect again.
        settle_failures(tx, row.run_id, checkpoint_id=row.id)
    data = {"holds": [hold.value for hold in holds], "reason": reason}
    record(tx, EventKind.CHECKPOINT_RELEASED, actor=actor, about=about_checkpoint(row), data=data)


def _set(tx: Transaction, row: Row[Any], holds: Sequence[Hold], *, is_held: bool) -> None:
    values = {HOLD_COLUMNS[hold]: is_held for hold in holds}
    tx.execute(update(checkpoints).where(checkpoints.c.id == row.id).values(values))
    touch_run(tx, row.run_id)

"""What people wrote about checkpoints: events of one kind."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.tables import events


def find_note(tx: Transaction, event_id: int) -> Row[Any]:
    """Return a note; there is one."""
    return tx.execute(select(events).where(events.c.id == event_id)).one()


def list_notes(tx: Transaction, checkpoint_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return events `checkpoint.noted` of a checkpoint, newest first.

    Cost: the events of this checkpoint, by index.
    """
    statement = select(events).where(
        events.c.checkpoint_id == checkpoint_id, events.c.kind == EventKind.CHECKPOINT_NOTED.value
    )
    return tx.execute(statement.order_by(events.c.id.desc()).limit(limit)).all()

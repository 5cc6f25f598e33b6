"""What a verdict writes on its checkpoint, and learns of its store."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select, update

from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.attempt_rules import measured_rate
from ckptguard_api.tables import checkpoints, stores


def note_verdict(tx: Transaction, checkpoint_id: int, *, retry_at: datetime | None) -> None:
    """Say on a checkpoint that a verdict was given, and when it is asked for again; None: never by itself."""
    c = checkpoints.c
    values = {"first_verdict_at": func.coalesce(c.first_verdict_at, tx.now), "retry_at": retry_at}
    tx.execute(update(checkpoints).where(c.id == checkpoint_id).values(values))


def set_verdict_in_force(tx: Transaction, checkpoint_id: int, given: Row[Any]) -> None:
    """Copy a recorded verdict to the checkpoint, and fill in what its registration left open."""
    c = checkpoints.c
    is_sized = given.verdict == Verdict.VALID.value and given.bytes_total > 0
    tx.execute(
        update(checkpoints)
        .where(c.id == checkpoint_id)
        .values(
            verdict=given.verdict,
            basis=given.basis,
            assurance=given.assurance,
            provenance=given.provenance,
            device=given.device,
            verdict_validation_id=given.validation_id,
            validated_at=given.given_at,
            format=func.coalesce(c.format, given.format),
            bytes_total=func.coalesce(c.bytes_total, given.bytes_total if is_sized else None),
        )
    )


def learn_rate(tx: Transaction, store_id: int, *, bytes_read: int, seconds_reading: float) -> None:
    """Note how fast a store was read, where that says something."""
    statement = select(stores.c.bytes_per_s).where(stores.c.id == store_id)
    previous = tx.execute(statement.with_for_update(key_share=True)).scalar_one()
    rate = measured_rate(previous, bytes_read=bytes_read, seconds_reading=seconds_reading)
    if rate != previous:
        tx.execute(update(stores).where(stores.c.id == store_id).values(bytes_per_s=rate))

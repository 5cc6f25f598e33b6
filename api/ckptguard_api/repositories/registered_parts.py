"""Parts of a checkpoint, as far as a lease and a verdict ask for them."""

from typing import Any

from sqlalchemy import Row, select

from ckptguard_api.database import Transaction
from ckptguard_api.tables import parts


def parts_of(tx: Transaction, checkpoint_id: int) -> list[Row[Any]]:
    """Return rows (name, identity, is_from_writer), by name."""
    columns = parts.c
    statement = select(columns.name, columns.identity, columns.is_from_writer)
    return list(tx.execute(statement.where(columns.checkpoint_id == checkpoint_id).order_by(columns.name)))


def manifests_of(tx: Transaction, checkpoint_id: int) -> tuple[tuple[str, int], ...]:
    """Return the name and the manifest of each part that was registered with one, by name."""
    columns = parts.c
    statement = select(columns.name, columns.manifest_id).where(
        columns.checkpoint_id == checkpoint_id, columns.manifest_id.is_not(None)
    )
    return tuple((row.name, row.manifest_id) for row in tx.execute(statement.order_by(columns.name)))


def are_all_from_writer(tx: Transaction, checkpoint: Row[Any]) -> bool:
    """Say whether the writer itself sent the manifest of every part that there is to be."""
    there = parts_of(tx, checkpoint.id)
    return {part.name for part in there} >= set(checkpoint.expected_parts) and all(
        part.is_from_writer and part.identity is not None for part in there
    )

"""Parts of checkpoints, and the manifests that they were registered with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from ckptguard_api.database import Transaction
from ckptguard_api.domain.packed_manifest import PackedManifest
from ckptguard_api.repositories.manifests import put_manifest
from ckptguard_api.tables import manifests, parts

PartRow = Row[Any]
"""A row of `parts`, all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTotals:
    """What the manifests of a checkpoint's parts add up to; None where no part has one.

    Args:
        num_files: Files listed.
        bytes_total: Their lengths.
    """

    num_files: int | None
    bytes_total: int | None


def find_part(tx: Transaction, checkpoint_id: int, name: str) -> PartRow | None:
    """Return the part of this name, or None."""
    statement = select(parts).where(parts.c.checkpoint_id == checkpoint_id, parts.c.name == name)
    return tx.execute(statement).one_or_none()


def part_names(tx: Transaction, checkpoint_id: int) -> Sequence[str]:
    """Return the names of the parts that are there."""
    statement = select(parts.c.name).where(parts.c.checkpoint_id == checkpoint_id)
    return tx.execute(statement.order_by(parts.c.name)).scalars().all()


def part_totals(tx: Transaction, checkpoint_id: int) -> PartTotals:
    """Add up the manifests of the parts that are there."""
    statement = (
        select(func.sum(manifests.c.num_files), func.sum(manifests.c.bytes_total))
        .select_from(parts.join(manifests, manifests.c.id == parts.c.manifest_id))
        .where(parts.c.checkpoint_id == checkpoint_id)
    )
    sums = tx.execute(statement).one()
    # PostgreSQL adds bigints up as decimals.
    num_files, bytes_total = (None if value is None else int(value) for value in sums)
    return PartTotals(num_files=num_files, bytes_total=bytes_total)


def add_part(
    tx: Transaction, checkpoint_id: int, packed: PackedManifest | None, *, registered_by: str
) -> None:
    """Add a part; without a manifest, the only one of its checkpoint."""
    values = {
        "checkpoint_id": checkpoint_id,
        "name": "" if packed is None else packed.part,
        "registered_by": registered_by,
        "registered_at": tx.now,
        **_manifest_values(tx, packed),
    }
    tx.execute(insert(parts).values(values))


def give_manifest(tx: Transaction, part: PartRow, packed: PackedManifest, *, registered_by: str) -> None:
    """Hold a part that is there against another manifest of the same bytes."""
    values = {"registered_by": registered_by, "registered_at": tx.now, **_manifest_values(tx, packed)}
    tx.execute(update(parts).where(parts.c.id == part.id).values(values))


def _manifest_values(tx: Transaction, packed: PackedManifest | None) -> dict[str, Any]:
    if packed is None:
        return {"manifest_id": None, "identity": None, "header": None, "is_from_writer": False}
    return {
        "manifest_id": put_manifest(tx, packed),
        "identity": packed.identity,
        "header": dict(packed.header),
        "is_from_writer": packed.is_from_writer,
    }

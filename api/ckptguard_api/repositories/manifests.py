"""Bodies of manifests, each stored once, whoever registered it."""

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from ckptguard_api.database import Transaction
from ckptguard_api.domain.packed_manifest import PackedManifest
from ckptguard_api.tables import manifests


def put_manifest(tx: Transaction, packed: PackedManifest) -> int:
    """Store a body unless it is there, and return its id."""
    found = _find(tx, packed.digest)
    return found if found is not None else _insert(tx, packed)


def manifest_body(tx: Transaction, manifest_id: int) -> bytes:
    """Return a body as it was packed."""
    body: bytes = tx.execute(select(manifests.c.body).where(manifests.c.id == manifest_id)).scalar_one()
    return body


def _insert(tx: Transaction, packed: PackedManifest) -> int:
    values = {
        "digest": packed.digest,
        "identity": packed.identity,
        "body": packed.body,
        "num_files": packed.num_files,
        "bytes_total": packed.bytes_total,
        "created_at": tx.now,
    }
    insert = postgresql.insert if tx.is_postgresql else sqlite.insert
    # Another project may have stored the same between the look and here.
    statement = insert(manifests).values(values).on_conflict_do_nothing(index_elements=["digest"])
    row_id: int | None = tx.execute(statement.returning(manifests.c.id)).scalar_one_or_none()
    if row_id is None:
        row_id = _find(tx, packed.digest)
        assert row_id is not None  # noqa: S101 - bodies are never deleted
    return row_id


def _find(tx: Transaction, digest: str) -> int | None:
    row_id: int | None = tx.execute(
        select(manifests.c.id).where(manifests.c.digest == digest)
    ).scalar_one_or_none()
    return row_id

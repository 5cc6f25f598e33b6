"""What attempts found of single files, kept until the verdict: the next attempt need not read again."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Row, delete, func, insert, select, update

from ckptguard_api.database import Transaction
from ckptguard_api.domain.files_going import PackedResult
from ckptguard_api.domain.storable_text import storable
from ckptguard_api.tables import file_results

_IN_ONE_QUERY: Final = 500


def path_digest(path: str) -> str:
    """Return the key of a path: paths may be longer than an index holds."""
    return hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()


def store_file_results(
    tx: Transaction, *, validation_id: int, attempt_id: int, results: Mapping[str, PackedResult]
) -> int:
    """Store results by path, and return how many paths had none.

    A path that has one keeps it where it is equal, and gets the later one where it differs: the file
    changed since. Neither counts as new.
    """
    by_digest = {path_digest(path): (path, packed) for path, packed in results.items()}
    there = _stored(tx, validation_id, list(by_digest))
    _insert(
        tx,
        [
            {
                "validation_id": validation_id,
                "path_digest": digest,
                "path": storable(path),
                "attempt_id": attempt_id,
                "result": packed.body,
                "state": packed.state.value,
            }
            for digest, (path, packed) in by_digest.items()
            if digest not in there
        ],
    )
    for digest, stored in there.items():
        if stored != by_digest[digest][1].body:
            _replace(tx, validation_id, digest, attempt_id=attempt_id, packed=by_digest[digest][1])
    return len(by_digest) - len(there)


def page_of_file_results(
    tx: Transaction, validation_id: int, *, after: str = "", limit: int = 500
) -> list[Row[Any]]:
    """Return rows (path_digest, result) beyond a digest, in the order of digests."""
    columns = file_results.c
    statement = (
        select(columns.path_digest, columns.result)
        .where(columns.validation_id == validation_id, columns.path_digest > after)
        .order_by(columns.path_digest)
        .limit(limit)
    )
    return list(tx.execute(statement).all())


def count_file_results(tx: Transaction, validation_id: int) -> int:
    """Return how many files have a result."""
    statement = select(func.count()).select_from(file_results)
    number: int = tx.execute(statement.where(file_results.c.validation_id == validation_id)).scalar_one()
    return number


def delete_file_results(tx: Transaction, validation_id: int) -> None:
    """Forget them: the verdict holds all there is to know, or nobody asks any more."""
    tx.execute(delete(file_results).where(file_results.c.validation_id == validation_id))


def _stored(tx: Transaction, validation_id: int, digests: list[str]) -> dict[str, bytes]:
    columns = file_results.c
    found: dict[str, bytes] = {}
    for start in range(0, len(digests), _IN_ONE_QUERY):
        statement = select(columns.path_digest, columns.result).where(
            columns.validation_id == validation_id,
            columns.path_digest.in_(digests[start : start + _IN_ONE_QUERY]),
        )
        found.update((row.path_digest, row.result) for row in tx.execute(statement))
    return found


def _insert(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    if rows:
        tx.execute(insert(file_results), rows)


def _replace(
    tx: Transaction, validation_id: int, digest: str, *, attempt_id: int, packed: PackedResult
) -> None:
    columns = file_results.c
    statement = update(file_results).where(
        columns.validation_id == validation_id, columns.path_digest == digest
    )
    values = {"attempt_id": attempt_id, "result": packed.body, "state": packed.state.value}
    tx.execute(statement.values(values))

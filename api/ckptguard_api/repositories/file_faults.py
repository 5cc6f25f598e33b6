"""What a validation found about single files."""

from typing import Final

from sqlalchemy import select

from ckptguard_api.database import Transaction
from ckptguard_api.domain.file_map import STATE_OF_SEVERITY, Fault, Faults
from ckptguard_api.tables import findings

MAX_FAULTS: Final = 20_000
"""Findings that are looked at; what is beyond may concern any file."""

_GRAVEST_FIRST: Final = tuple(STATE_OF_SEVERITY)
_MORE: Final = "and % more findings of this kind%"  # `checks.bounded`: the rest is counted, not told


def faults_of(tx: Transaction, validation_id: int) -> Faults:
    """Return the gravest finding about each file."""
    c = findings.c
    statement = (
        select(c.file, c.severity, c.code, c.message)
        .where(c.validation_id == validation_id, c.file.is_not(None), c.is_about_checkpoint.is_(True))
        .where(c.severity.in_(_GRAVEST_FIRST))
        .order_by(c.number)
        .limit(MAX_FAULTS)
    )
    rows = tx.execute(statement).all()
    by_path: dict[str, Fault] = {}
    for row in sorted(rows, key=lambda row: _GRAVEST_FIRST.index(row.severity)):
        by_path.setdefault(row.file, Fault(severity=row.severity, code=row.code, message=row.message))
    return Faults(by_path=by_path, is_cut=len(rows) == MAX_FAULTS or _has_more(tx, validation_id))


def _has_more(tx: Transaction, validation_id: int) -> bool:
    c = findings.c
    statement = select(c.id).where(
        c.validation_id == validation_id,
        c.file.is_(None),
        c.severity.in_(_GRAVEST_FIRST[:2]),
        c.message.like(_MORE),
    )
    return tx.execute(statement.limit(1)).one_or_none() is not None

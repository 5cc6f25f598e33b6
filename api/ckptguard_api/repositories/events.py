"""The audit: rows are added and never changed. SSE, webhooks and `history` read it."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import insert, text

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.subject import Subject
from ckptguard_api.tables import events

NOTHING: Final = Subject()
_ORDER_LOCK: Final = 0x636B7074  # "ckpt"


def record(
    tx: Transaction,
    kind: EventKind,
    *,
    actor: Actor,
    about: Subject = NOTHING,
    data: dict[str, Any] | None = None,
) -> int:
    """Add one event to this transaction, and return its id.

    Guarantees: ids become visible in their order, so that whoever remembers the last id it saw
    misses none. PostgreSQL gives ids before commits, hence the lock, held until the commit.
    """
    _take_turn(tx)
    values = _values(tx, kind, actor, about, data)
    row_id: int = tx.execute(insert(events).values(values).returning(events.c.id)).scalar_one()
    return row_id


def record_facts(tx: Transaction, facts: Iterable[Fact], *, actor: Actor) -> None:
    """Add one event for each subject of each fact, in their order, with few statements."""
    rows = [_values(tx, fact.kind, actor, subject, fact.data) for fact in facts for subject in fact.about]
    if rows:
        _take_turn(tx)
        tx.execute(insert(events), rows)


def _take_turn(tx: Transaction) -> None:
    if tx.is_postgresql:
        tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ORDER_LOCK})


def _values(
    tx: Transaction, kind: EventKind, actor: Actor, about: Subject, data: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "at": tx.now,
        "kind": kind.value,
        "actor": actor.name,
        **asdict(about),
        "data": data or {},
    }

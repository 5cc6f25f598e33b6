"""The audit: rows are added and never changed. SSE, webhooks and `history` read it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.storable_text import storable_json
from ckptguard_api.domain.subject import Subject
from ckptguard_api.event_buffer import NewEvent

NOTHING: Final = Subject()


def record(
    tx: Transaction,
    kind: EventKind,
    *,
    actor: Actor = SERVICE,
    about: Subject = NOTHING,
    data: Mapping[str, Any] | None = None,
) -> NewEvent:
    """Let this transaction add one event when it commits; it locks nothing, and may come at any point.

    Returns:
        The event, whose id is known after the commit. This transaction cannot read it.
    """
    return tx.events.add(_values(tx, kind, actor, about, storable_json(data or {})))


def record_facts(tx: Transaction, facts: Iterable[Fact], *, actor: Actor) -> None:
    """Record one event for each subject of each fact, in their order."""
    for fact in facts:
        data = storable_json(fact.data)
        for subject in fact.about:
            tx.events.add(_values(tx, fact.kind, actor, subject, data))


def _values(
    tx: Transaction, kind: EventKind, actor: Actor, about: Subject, data: Mapping[str, Any]
) -> dict[str, Any]:
    return {"at": tx.now, "kind": kind.value, "actor": actor.name, **asdict(about), "data": data}

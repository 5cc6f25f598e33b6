"""Events of one transaction, kept until nothing more is to be locked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.storable_text import storable_json
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories.events import record


@dataclass(slots=True)
class PendingEvents:
    """Collects events in their order; `record` takes a lock that all writers share, and comes last."""

    _waiting: list[tuple[EventKind, Subject, Mapping[str, Any], Actor]] = field(default_factory=list)

    def add(
        self, kind: EventKind, *, about: Subject, data: Mapping[str, Any], actor: Actor = SERVICE
    ) -> None:
        """Keep one event."""
        self._waiting.append((kind, about, data, actor))

    def extend(self, others: "PendingEvents") -> None:
        """Keep those of another, after these."""
        self._waiting.extend(others._waiting)  # noqa: SLF001 - of its own kind

    def record_all(self, tx: Transaction) -> None:
        """Add them to the audit."""
        for kind, about, data, actor in self._waiting:
            record(tx, kind, actor=actor, about=about, data=storable_json(data))
        self._waiting.clear()

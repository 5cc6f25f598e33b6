"""What happened, to be told at the end of a transaction."""

from dataclasses import dataclass, field
from typing import Any

from ckptguard.model.service import EventKind
from ckptguard_api.domain.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One kind of event about one or several rows.

    Args:
        kind: Of the event.
        about: One event for each.
        data: The same for all.
    """

    kind: EventKind
    about: tuple[Subject, ...]
    data: dict[str, Any] = field(default_factory=dict)

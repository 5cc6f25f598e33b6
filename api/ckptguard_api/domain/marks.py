"""One mark for a checkpoint: what is drawn where there is room for one shape.

Lifecycle, verdict and open validation do not depend on each other (design §7); a mark shows the one of them
that tells most. Each has a shape of its own: colour alone says nothing to some people, and nothing in print.
"""

from enum import StrEnum
from functools import cache
from typing import Any, Final

from ckptguard.model.service import Lifecycle, ValidationState
from ckptguard.model.verdict import Assurance, Verdict


class Mark(StrEnum):
    """What a checkpoint is drawn as; the order is the code in a timeline's JSON."""

    VALID_STRUCTURE = "valid-structure"
    VALID_CONTENT = "valid-content"
    VALID_LOADED = "valid-loaded"
    VALID_RESUMABLE = "valid-resumable"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    RUNNING = "running"
    QUEUED = "queued"
    UNJUDGED = "unjudged"
    ANNOUNCED = "announced"
    INCOMPLETE = "incomplete"
    DELETED = "deleted"

    @property
    def text(self) -> str:
        """What it means."""
        return _TEXTS[self]


_TEXTS: Final = {
    Mark.VALID_STRUCTURE: "VALID structure",
    Mark.VALID_CONTENT: "VALID content",
    Mark.VALID_LOADED: "VALID loaded",
    Mark.VALID_RESUMABLE: "VALID resumable",
    Mark.INVALID: "INVALID",
    Mark.UNKNOWN: "UNKNOWN",
    Mark.RUNNING: "validation running",
    Mark.QUEUED: "validation queued",
    Mark.UNJUDGED: "no verdict",
    Mark.ANNOUNCED: "being saved",
    Mark.INCOMPLETE: "announced, never came",
    Mark.DELETED: "deleted",
}
_OF_LIFECYCLE: Final = {
    Lifecycle.ANNOUNCED: Mark.ANNOUNCED,
    Lifecycle.INCOMPLETE: Mark.INCOMPLETE,
    Lifecycle.DELETED: Mark.DELETED,
}
_OF_VALID: Final = {level: Mark(f"valid-{level.value}") for level in Assurance}
_OF_STATE: Final = {ValidationState.RUNNING: Mark.RUNNING, ValidationState.QUEUED: Mark.QUEUED}


def mark_of(row: Any) -> Mark:  # noqa: ANN401 - a row of `checkpoints`
    """Return the mark of a row with `lifecycle`, `verdict`, `assurance` and `validation_state`."""
    return mark_of_kind(row.lifecycle, row.verdict, row.assurance, row.validation_state)


@cache
def mark_of_kind(
    lifecycle: str, verdict: str | None, assurance: str | None, validation_state: str | None
) -> Mark:
    """Return the mark of all checkpoints of a kind.

    A verdict in force is shown while it is looked at again; what has no bytes any more shows none.
    """
    if lifecycle in _OF_LIFECYCLE:
        return _OF_LIFECYCLE[Lifecycle(lifecycle)]
    if verdict == Verdict.VALID and assurance is not None:
        return _OF_VALID[Assurance(assurance)]
    if verdict is not None:
        return Mark.INVALID if verdict == Verdict.INVALID else Mark.UNKNOWN
    return Mark.UNJUDGED if validation_state is None else _OF_STATE[ValidationState(validation_state)]

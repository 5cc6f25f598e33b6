"""What `adopt` has to tell of one checkpoint, one pointer, or itself."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class NewsKind(StrEnum):
    """What happened; part of `--json`, never renamed."""

    REGISTERED = "registered"  # the service did not know it
    KNOWN = "known"  # it did
    WOULD_REGISTER = "would_register"  # --dry-run
    WAITING = "waiting"  # not committed, not at rest or not to be read now: time may change it
    SKIPPED = "skipped"  # not committed, and nobody writes there any more
    REFUSED = "refused"  # by the service
    UNREADABLE = "unreadable"  # its metadata cannot be read, and time alone does not change it
    DELETED = "deleted"  # it is gone, and the service was told
    GONE = "gone"  # it is gone, and the service could not be told
    POINTER = "pointer"  # a tracker or `latest` is wrong
    TROUBLE = "trouble"  # store or service give no answer; goes on trying
    RECOVERED = "recovered"  # they do again


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One thing to tell.

    Args:
        kind: What happened.
        run: Whose.
        step: Of the checkpoint.
        path: Of the checkpoint, or the pointer, below the root; "" is the root itself.
        checkpoint_id: The service's.
        is_validated: A verdict was asked for.
        fault: Of a pointer: `stale`, `dangling`, `uncommitted`, `unparsable`.
        reason: Why; for a person.
        superseded: Checkpoints whose bytes it replaced.
        notes: For a person.
    """

    kind: NewsKind
    run: str | None = None
    step: int | None = None
    path: str = ""
    checkpoint_id: int | None = None
    is_validated: bool = False
    fault: str | None = None
    reason: str | None = None
    superseded: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


Tell = Callable[[News], None]
Advance = Callable[[int, int], None]
"""Takes how many checkpoints of how many are done."""

"""What a stream sends: events as WHATWG's server-sent events."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ckptguard_api.repositories.event_feed import EventRow, ProgressRow

HEARTBEAT: Final = b": still here\n\n"
"""A comment: keeps proxies and clients from giving up."""

RETRY: Final = b"retry: 2000\n\n"
"""How long a client waits, in milliseconds, before it comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message, and whom it concerns.

    Args:
        event_id: Of the event; None: of progress, which is not kept.
        project_id: Whose it is.
        run_id: Which run it is about.
        body: As sent.
    """

    event_id: int | None
    project_id: int | None
    run_id: int | None
    body: bytes

    def concerns(self, *, project_id: int, run_id: int | None) -> bool:
        """Say whether a stream of this project, and of this run if any, shows it."""
        return self.project_id == project_id and run_id in (None, self.run_id)


def frame_of_event(row: EventRow) -> Frame:
    """Return the message of an event; `id:` is what `Last-Event-ID` names."""
    data = {
        "id": row.id,
        "at": _utc_text(row.at),
        "kind": row.kind,
        "actor": row.actor,
        "run": row.run,
        "checkpoint_id": row.checkpoint_id,
        "validation_id": row.validation_id,
        "data": row.data,
    }
    body = b"id: %d\nevent: %b\ndata: %b\n\n" % (row.id, row.kind.encode(), _json(data))
    return Frame(event_id=row.id, project_id=row.project_id, run_id=row.run_id, body=body)


def frame_of_progress(row: ProgressRow) -> Frame:
    """Return the message of a running lease's progress."""
    data = {
        "run": row.run,
        "checkpoint_id": row.checkpoint_id,
        "validation_id": row.validation_id,
        "progress": row.progress,
    }
    body = b"event: progress\ndata: %b\n\n" % _json(data)
    return Frame(event_id=None, project_id=row.project_id, run_id=row.run_id, body=body)


def _utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _json(value: dict[str, Any]) -> bytes:
    # ASCII, one line: nothing in a name can begin another field, nor another line for a reader that
    # splits at U+2028 or U+0085 too.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()

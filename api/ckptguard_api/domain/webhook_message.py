"""What a webhook says: thin, so that a receiver asks the API for all else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ckptguard.model.service import EventKind

MAX_BODY_BYTES: Final = 20_000
"""Of the Standard Webhooks specification: payloads stay below 20 KB."""

WEBHOOK_KINDS: Final = (
    EventKind.CHECKPOINT_VERDICT_CHANGED,
    EventKind.RUN_UNPROTECTED,
    EventKind.RUN_RESTARTS_FAILING,
    EventKind.RUN_STEP_WENT_BACK,
    EventKind.WORKER_SILENT,
)
"""What a webhook may ask for; `webhook.test` comes to every one when it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event, with the names that its ids stand for.

    Args:
        event_id: Of the audit; ascending.
        kind: Of the event.
        at: When.
        names: `project`, `run`, `checkpoint_id`, `step`, `save_id`, `validation_id`; None: not about one.
        data: Of the event.
    """

    event_id: int
    kind: str
    at: datetime
    names: Mapping[str, str | int | None]
    data: Mapping[str, Any]


def message_body(happening: Happening) -> bytes:
    """Return the JSON that is sent: the same bytes for the same event, in every try.

    Guarantees: below `MAX_BODY_BYTES`; where the event's own data would not fit it is left out, and
    `is_truncated` says so.
    """
    names = {name: value for name, value in happening.names.items() if value is not None}
    own = {"event_id": happening.event_id, **names}
    body = _encoded(happening, {**happening.data, **own, "is_truncated": False})
    if len(body) < MAX_BODY_BYTES:
        return body
    return _encoded(happening, {**own, "is_truncated": True})


def _encoded(happening: Happening, data: Mapping[str, Any]) -> bytes:
    value = {
        "type": happening.kind,
        "timestamp": happening.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "data": data,
    }
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()

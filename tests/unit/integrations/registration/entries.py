"""Entries of a spool, and a sender whose service answers as a test wrote down."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ckptguard.client.address import Address
from ckptguard.client.client import Client
from ckptguard.integrations.registration.entry import Entry, digest_of
from ckptguard.integrations.registration.sender import Sender
from ckptguard.integrations.registration.spool import Spool
from tests.scripted_service import TOKEN, Reply, ScriptedService

SAVED_AT = datetime.now(UTC).replace(microsecond=0)
REGISTER = "POST /v1/runs/r/checkpoints"
ANSWER: dict[str, Any] = {
    "checkpoint": {"id": 1, "run": "r", "step": 1, "save_id": "s", "lifecycle": "registered"},
    "validation": None,
    "is_new": True,
    "superseded": [],
    "notes": [],
}
CREATED = Reply(status=201, value=ANSWER)


def entry(folder: Path, step: int = 1, **changes: Any) -> Entry:  # noqa: ANN401 - fields
    """Return the entry of a checkpoint, whose manifest it writes in a folder of its own."""
    checkpoint = folder / f"step-{step}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    data = f'{{"step":{step}}}'.encode()
    (checkpoint / "ckptguard.manifest.json").write_bytes(data)
    values: dict[str, Any] = {
        "run": "r",
        "step": step,
        "save_id": f"s-{step}",
        "location": {"url": str(checkpoint)},
        "manifest": {"step": step},
        "manifest_at": str(checkpoint / "ckptguard.manifest.json"),
        "manifest_digest": digest_of(data),
        "manifest_bytes": len(data),
        "saved_at": SAVED_AT.replace(second=step % 60),
    }
    return Entry(**values | changes)


def sender(spool: Spool, service: ScriptedService) -> Sender:
    """Return a sender to a scripted service, with a short deadline."""
    return Sender(spool, connect=lambda: Client(Address.of(service.url, TOKEN), deadline_s=0.3))

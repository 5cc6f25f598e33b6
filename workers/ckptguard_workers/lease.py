"""A lease, as the service words it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ckptguard.errors import FormatError, ServiceError
from ckptguard.model.policy import Policy
from ckptguard.model.policy_json import policy_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the checkpoint.

    Args:
        name: Its folder; "" is the whole.
        has_manifest: The service knows one.
        is_from_writer: It came from the writer itself.
    """

    name: str
    has_manifest: bool
    is_from_writer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to one attempt (docs/service.md).

    Args:
        token: Needed for each write, besides the worker's own.
        label: Run and step, for a person.
        store: Name of the store.
        store_url: Its root as the service knows it; this machine may have another.
        path: The checkpoint in the store.
    """

    id: int
    token: str = field(repr=False)
    heartbeat_every_s: float
    deadline_at: datetime
    validation_id: int
    label: str
    store: str
    store_url: str
    path: str
    policy: Policy
    parts: tuple[Part, ...]
    known_files: int

    @property
    def is_from_writer(self) -> bool:
        """Whether every part's manifest came from the writer."""
        return bool(self.parts) and all(part.has_manifest and part.is_from_writer for part in self.parts)


def lease_from_json(value: Mapping[str, Any]) -> Lease:
    """Read a lease; fields that this version does not know are left alone.

    Raises:
        ServiceError: It is none; the service is of another version, or something else answers.
    """
    try:
        return _lease(value)
    except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
        msg = f"the service gave what is no lease: {type(error).__name__}: {error}"
        raise ServiceError(msg) from error


def _lease(value: Mapping[str, Any]) -> Lease:
    checkpoint, store, validation = value["checkpoint"], value["store"], value["validation"]
    return Lease(
        id=int(value["id"]),
        token=str(value["token"]),
        heartbeat_every_s=float(value["heartbeat_every_s"]),
        deadline_at=datetime.fromisoformat(value["deadline_at"]),
        validation_id=int(validation["id"]),
        label=f"{checkpoint['run']} step {checkpoint['step']}",
        store=str(store["name"]),
        store_url=str(store["url"]),
        path=str(store["path"]),
        policy=policy_from_json(value["policy"]),
        parts=tuple(
            Part(
                name=str(part["name"]),
                has_manifest=part["identity"] is not None,
                is_from_writer=bool(part["is_from_writer"]),
            )
            for part in value["parts"]
        ),
        known_files=int(value["known_files"]),
    )

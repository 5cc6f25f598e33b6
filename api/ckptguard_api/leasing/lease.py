"""A lease, as its worker is told of it; and its token."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ckptguard.model.policy import Policy

_TOKEN_PREFIX: Final = "ckl_"  # noqa: S105 - how every token of a lease begins
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedValidation:
    """What is asked: depth, and the number of this attempt, from 1."""

    id: int
    depth: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedCheckpoint:
    """What it is asked of."""

    id: int
    run: str
    step: int
    save_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedStore:
    """Where it lies: each machine maps the store's name to a root of its own."""

    name: str
    url: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedPart:
    """One part; `identity` is None where no manifest was registered."""

    name: str
    identity: str | None
    is_from_writer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A worker's time-limited right to one attempt (docs/service.md, "Worker").

    Args:
        id: Of the attempt, and the fence: a later attempt has a higher one.
        token: The only thing that can write to it; not kept anywhere.
        expires_at: Unless a heartbeat comes before.
        deadline_at: No heartbeat moves it.
        known_files: How many files have a result of an earlier attempt.
    """

    id: int
    token: str = field(repr=False)
    expires_at: datetime
    deadline_at: datetime
    heartbeat_every_s: float
    stall_after_s: float
    validation: LeasedValidation
    checkpoint: LeasedCheckpoint
    store: LeasedStore
    policy: Policy
    parts: tuple[LeasedPart, ...]
    known_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseKey:
    """What a worker shows with every write.

    Args:
        id: Of the attempt.
        token: As it was given.
    """

    id: int
    token: str = field(repr=False)

    def opens(self, token_hash: str) -> bool:
        """Say whether the token is the one with this hash, in constant time."""
        return hmac.compare_digest(hash_of(self.token), token_hash)


def new_token() -> str:
    """Draw a token: 256 bits of chance."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def hash_of(token: str) -> str:
    """Return what is stored in place of a token: it cannot be guessed, so no salt is needed."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()

"""What leases and verdicts must do, over plain values: no SQL, and none of the code under test."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

LEASE_S = 60.0
STALL_AFTER_S = 300.0
DEADLINE_S = 900.0
MAX_COUNTED = 3

_RUNGS = ("structure", "content", "loaded")
_REACH = {"structure": "structure", "content": "content", "load": "loaded"}


@dataclass(kw_only=True)
class ModelVerdict:
    """One verdict, in the order given; `content` names the bytes that it saw."""

    validation_id: int
    verdict: str
    basis: str | None
    assurance: str | None
    depth: str
    content: str
    checks: int
    worker: str | None
    is_about_bytes: bool = False


@dataclass(kw_only=True)
class ModelLift:
    """An operator lifted damage in favour of this VALID of the same bytes."""

    valid: ModelVerdict


@dataclass(kw_only=True)
class ModelLease:
    """One lease that was given: live while the model says so."""

    id: int
    validation_id: int
    worker: str
    heard_at: datetime
    progress_at: datetime
    stalled_from: datetime
    deadline_at: datetime
    done: int = 0
    new_files: int = 0
    ending: str | None = None

    def is_live(self, now: datetime) -> bool:
        """Say whether its holder may write."""
        return self.ending is None and now < self.expires_at

    @property
    def expires_at(self) -> datetime:
        """The end: silence, standstill or deadline."""
        silent = self.heard_at + timedelta(seconds=LEASE_S)
        still = self.stalled_from + timedelta(seconds=STALL_AFTER_S)
        return min(silent, still, self.deadline_at)

    def hear(self, now: datetime, done: int) -> None:
        """Take a heartbeat."""
        self.heard_at = now
        if done > self.done:
            self.progress_at = now
        self.done = done
        self.stalled_from = self.progress_at  # what the lease's end was computed from


@dataclass(kw_only=True)
class ModelValidation:
    """One request for a verdict."""

    id: int
    checkpoint_id: int
    state: str = "queued"
    depth: str = "load"
    counted: int = 0
    attempts: int = 0
    files: set[str] = field(default_factory=set)


@dataclass(kw_only=True)
class ModelCheckpoint:
    """One checkpoint; `is_wanted` while its bytes are there."""

    id: int
    run_id: int
    store: str
    content: str
    is_wanted: bool = True
    history: list[ModelVerdict | ModelLift] = field(default_factory=list)


def in_force(history: Sequence[ModelVerdict | ModelLift]) -> ModelVerdict | None:
    """Return the verdict that must be in force after all of these, oldest first."""
    current: ModelVerdict | None = None
    damage: list[ModelVerdict] = []
    for new in history:
        if isinstance(new, ModelLift):
            damage = [earlier for earlier in damage if earlier.content != new.valid.content]
            current = new.valid
        elif new.verdict == "INVALID":
            current = new
            damage = [new, *damage] if new.basis == "damage" else damage
        elif new.verdict == "UNKNOWN" and not new.is_about_bytes:
            current = new if current is None or current.verdict == "UNKNOWN" else current
        elif current is None or not _stays_stronger(current, new):
            current = next((earlier for earlier in damage if _speaks_of(earlier, new)), new)
    return current


def _speaks_of(damage: ModelVerdict, new: ModelVerdict) -> bool:
    return damage.content == new.content and new.checks <= damage.checks


def _stays_stronger(current: ModelVerdict, new: ModelVerdict) -> bool:
    if current.verdict != "VALID" or new.verdict != "VALID" or current.content != new.content:
        return False
    asked, there = _RUNGS.index(_REACH[new.depth]), _RUNGS.index(str(current.assurance))
    return asked < there and _RUNGS.index(str(new.assurance)) < there

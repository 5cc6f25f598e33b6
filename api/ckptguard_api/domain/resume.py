"""The resume target: what a launcher asks, what is looked at, and what it is told (design §7)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from ckptguard.model.policy import Depth
from ckptguard.model.service import EVERY_STORE, Lifecycle, ResumeState, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, Provenance, Verdict

Order = tuple[int, int, datetime, int]
"""Branch, step, `created_at`, id: the order of checkpoints within a run."""

WEAKEST_FIRST: Final = (Provenance.UNPROVEN, Provenance.UNCHANGED, Provenance.PROVEN)
_REACHES: Final = {Depth.STRUCTURE: Assurance.STRUCTURE, Depth.CONTENT: Assurance.CONTENT}


class Reason(StrEnum):
    """Why a checkpoint is not the target."""

    INVALID = "invalid"
    UNKNOWN = "unknown"
    NOT_VALIDATED = "not_validated"
    QUEUED = "queued"
    RUNNING = "running"
    ANNOUNCED = "announced"
    INCOMPLETE = "incomplete"
    QUARANTINED = "quarantined"
    SUSPECT = "suspect"
    BELOW_ASSURANCE = "below_assurance"
    BELOW_PROVENANCE = "below_provenance"
    OTHER_DEVICE = "other_device"
    TOO_OLD = "too_old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a launcher says; what it leaves out, the run's policy says (`Asked`)."""

    min_assurance: Assurance | None = None
    min_provenance: Provenance | None = None
    device: str | None = None
    step: int | None = None
    before_step: int | None = None
    max_age_s: float | None = None
    require_newest: bool = False
    exclude: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a checkpoint must be to be the target.

    Args:
        min_assurance: How far its VALID must go.
        min_provenance: What must be known about its origin; None: anything.
        device: Where it was loaded: `cpu`, `cuda`, `cuda:0`, `cuda:0 NVIDIA H200`; None: anywhere.
        step: Only this step, also one that a rollback left behind.
        before_step: Only earlier steps.
        max_age_s: Age of its validation at most, in seconds.
        require_newest: Rather none than one below which a newer one may still become VALID.
        exclude: Ids of those that the asker did not find whole: for it they are deleted.
    """

    min_assurance: Assurance = Assurance.LOADED
    min_provenance: Provenance | None = None
    device: str | None = None
    step: int | None = None
    before_step: int | None = None
    max_age_s: float | None = None
    require_newest: bool = False
    exclude: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, question: Question, *, min_assurance: Assurance, min_provenance: Provenance | None
    ) -> "Asked":
        """Fill in the run's policy where the launcher leaves it open."""
        return cls(
            min_assurance=question.min_assurance or min_assurance,
            min_provenance=question.min_provenance or min_provenance,
            device=question.device,
            step=question.step,
            before_step=question.before_step,
            max_age_s=question.max_age_s,
            require_newest=question.require_newest,
            exclude=question.exclude,
        )

    def as_seen(self, candidate: "Candidate") -> "Candidate":
        """Return a checkpoint as the asker sees it: what it did not find whole has lost its bytes."""
        if candidate.id not in self.exclude:
            return candidate
        return replace(candidate, lifecycle=Lifecycle.DELETED, superseded_by=None)

    def is_about(self, step: int) -> bool:
        """Say whether checkpoints of this step are asked about at all."""
        if self.step is not None and step != self.step:
            return False
        return self.before_step is None or step < self.before_step

    def too_old_before(self, now: datetime) -> datetime | None:
        """Return the time at or after which a checkpoint must have been validated."""
        return None if self.max_age_s is None else now - timedelta(seconds=self.max_age_s)

    @property
    def provenances(self) -> tuple[Provenance, ...]:
        """All that are good enough; empty where any is, even none."""
        if self.min_provenance is None:
            return ()
        return WEAKEST_FIRST[WEAKEST_FIRST.index(self.min_provenance) :]

    @property
    def assurances(self) -> tuple[Assurance, ...]:
        """All that are good enough."""
        return tuple(level for level in Assurance if level.rank >= self.min_assurance.rank)

    @property
    def depths(self) -> tuple[Depth, ...]:
        """Of validations that can end with a VALID that is good enough."""
        return tuple(depth for depth in Depth if reaches(depth, self.min_assurance))


def reaches(depth: Depth, assurance: Assurance) -> bool:
    """Say whether a validation of this depth can end with this assurance."""
    return _REACHES.get(depth, Assurance.RESUMABLE).rank >= assurance.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint, as far as the choice depends on it; columns of `checkpoints`.

    Args:
        is_complete: It was registered, with all its parts; said of one that was rolled back.
        open_depth: Depth of the validation that is queued or running.
        retry_at: When the service asks again for its verdict; None: not by itself.
        retry_depth: How deep it asks then.
    """

    id: int
    branch: int
    step: int
    created_at: datetime
    lifecycle: Lifecycle
    superseded_by: SupersededBy | None = None
    is_complete: bool = True
    keep_alive_until: datetime | None = None
    verdict: Verdict | None = None
    assurance: Assurance | None = None
    provenance: Provenance | None = None
    device: str | None = None
    validated_at: datetime | None = None
    is_quarantined: bool = False
    is_suspect: bool = False
    validation_state: ValidationState | None = None
    open_depth: Depth | None = None
    retry_at: datetime | None = None
    retry_depth: Depth | None = None

    @property
    def order(self) -> Order:
        """Its place in the run; a higher one is newer."""
        return (self.branch, self.step, self.created_at, self.id)

    @property
    def is_held(self) -> bool:
        """Whether an operator, or the run's restarts, forbid it."""
        return self.is_quarantined or self.is_suspect

    @property
    def next_try_at(self) -> datetime | None:
        """When the service asks again: only while the run is on the way to it, and nothing is open."""
        return self.retry_at if self.lifecycle is Lifecycle.REGISTERED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A newer checkpoint that is not the target, and why."""

    candidate: Candidate
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The answer to "which is the last checkpoint proven good?".

    Args:
        state: As documented; `target` is set in `valid` alone.
        target: The newest that is VALID as asked.
        below: Where there is no target: the best that only lacks assurance; highest first, then newest.
        passed_over: Newer ones than the newest VALID as asked, newest first; those superseded or deleted
            are not among them.
        is_open: Whether the verdict of a newer one may still make it VALID as asked.
    """

    state: ResumeState
    target: Candidate | None = None
    below: Candidate | None = None
    passed_over: tuple[PassedOver, ...] = ()
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a running validation is.

    Args:
        bytes_done: Of this attempt.
        bytes_total: To be read.
        bytes_per_s: On average since the attempt began; None: not known yet.
    """

    bytes_done: int
    bytes_total: int | None
    bytes_per_s: float | None

    @classmethod
    def of(cls, told: Mapping[str, Any], *, seconds: float) -> "Progress":
        """Read what a heartbeat told, `seconds` after the attempt began."""
        done, total = told.get("bytes_done"), told.get("bytes_total")
        bytes_done = done if isinstance(done, int) else 0
        return cls(
            bytes_done=bytes_done,
            bytes_total=total if isinstance(total, int) else None,
            bytes_per_s=bytes_done / seconds if seconds > 0 and bytes_done > 0 else None,
        )

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end at this rate; None: not known."""
        if self.bytes_total is None or not self.bytes_per_s:
            return None
        return max(0, self.bytes_total - self.bytes_done) / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardWorker:
    """A worker that was heard from lately and is not draining.

    Args:
        project_id: The only one it works for; None: all.
        stores: Names of those that it maps; `EVERY_STORE` stands for all.
        depths: Those that it can do; None: it did not say.
    """

    project_id: int | None
    stores: frozenset[str]
    depths: frozenset[str] | None

    @classmethod
    def of(cls, capabilities: Mapping[str, Any], *, project_id: int | None) -> "HeardWorker":
        """Read what it said it can do."""
        depths = capabilities.get("depths")
        return cls(
            project_id=project_id,
            stores=frozenset(capabilities.get("stores") or ()),
            depths=frozenset(depths) if depths else None,
        )

    def can_do(self, waited_for: "WaitedFor", *, project_id: int) -> bool:
        """Say whether it could take this validation."""
        return (
            self.project_id in (None, project_id)
            and not self.stores.isdisjoint({waited_for.store, EVERY_STORE})
            and (self.depths is None or waited_for.depth.value in self.depths)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """A validation, queued or running, that may give a newer target.

    Args:
        store: Name of the store that a worker must map to do it.
    """

    validation_id: int
    store: str
    depth: Depth

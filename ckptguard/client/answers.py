"""What the service answers, as values: unknown fields are ignored, a missing one is an error."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ckptguard.client.decode import decode, encode
from ckptguard.model.finding import Basis
from ckptguard.model.service import ResumeState
from ckptguard.model.verdict import Assurance, Provenance, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where an open validation stands.

    Args:
        state: `queued` or `running`.
        eta_s: Seconds until it should end, as far as the rate tells.
    """

    state: str
    id: int | None = None
    phase: str | None = None
    bytes_done: int | None = None
    bytes_total: int | None = None
    bytes_per_s: float | None = None
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A checkpoint that was proven good.

    Args:
        path: Folder, relative to the store.
        url: The same, as the service sees it.
        created_at: Of the save.
    """

    id: int
    branch: int
    step: int
    save_id: str
    created_at: datetime
    store: str
    path: str
    url: str
    assurance: Assurance
    provenance: Provenance | None
    device: str | None
    validated_at: datetime
    validation_id: int
    format: str | None = None
    num_files: int | None = None
    bytes_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A checkpoint newer than the target, and why it is not it.

    Args:
        reason: One word of docs/service.md, e.g. `invalid`.
        detail: For a person; the first finding, where there is one.
        retry_at: When the service asks again for its verdict; None: not by itself.
    """

    id: int
    branch: int
    step: int
    reason: str
    verdict: Verdict | None = None
    basis: Basis | None = None
    assurance: Assurance | None = None
    lifecycle: str | None = None
    holds: tuple[str, ...] = ()
    detail: str | None = None
    retry_at: datetime | None = None
    validation: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the service understood of the question."""

    min_assurance: Assurance | None = None
    min_provenance: Provenance | None = None
    device: str | None = None
    step: int | None = None
    before_step: int | None = None
    max_age_s: float | None = None
    require_newest: bool = False
    exclude: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAnswer:
    """The last checkpoint proven good, or why there is none.

    Args:
        index: The run's revision; None: the run is unknown.
        is_cached: The service could not look: this is from before, and counts as no answer.
        target: In state `valid`.
        below: The best there is below what was asked; in `valid_below`, and perhaps in `pending`.
        passed_over: Newer ones, newest first; the first of `passed_over_total`.
    """

    state: ResumeState
    run: str
    target: Target | None
    below: Target | None
    passed_over: tuple[PassedOver, ...]
    passed_over_total: int
    index: int | None = None
    is_cached: bool = False
    asked: Asked = field(default_factory=Asked)
    superseded: int = 0

    def __post_init__(self) -> None:
        """Hold that exactly `valid` has a target, and that `valid_below` has a best one below."""
        if (self.state is ResumeState.VALID) != (self.target is not None):
            msg = f"state {self.state} {'with' if self.target else 'without'} a target"
            raise ValueError(msg)
        if self.state is ResumeState.VALID_BELOW and self.below is None:
            msg = f"state {self.state} without the one below"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What a failure now would cost: everything since the newest VALID."""

    seconds: float | None = None
    steps: int | None = None
    gpu_hours: float | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestValid:
    """The newest VALID checkpoint of a run."""

    id: int
    step: int
    created_at: datetime | None = None
    assurance: Assurance | None = None
    branch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training lineage with its policy.

    Args:
        counts: Checkpoints by verdict; `none` for those without.
    """

    name: str
    branch: int = 0
    revision: int = 0
    created_at: datetime | None = None
    min_assurance: Assurance | None = None
    min_provenance: Provenance | None = None
    numerics: str | None = None
    required_fqns: tuple[str, ...] = ()
    gpus: int | None = None
    usd_per_gpu_hour: float | None = None
    unprotected_after_s: float | None = None
    min_steps: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    open_validations: int = 0
    step_went_back_at: datetime | None = None
    restarts_failing_at: datetime | None = None
    newest_valid: NewestValid | None = None
    exposure: Exposure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a validation."""

    number: int
    worker: str
    started_at: datetime
    ended_at: datetime | None = None
    ending: str | None = None
    reason: str | None = None
    is_counted: bool = False
    new_files: int = 0
    bytes_read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A request for a verdict, and the verdict where there is one.

    Args:
        attempts: Where it was asked for by itself; `checks` too.
        findings: Of the verdict in force of a checkpoint; the first of `findings_total`.
    """

    id: int
    state: str
    depth: str | None = None
    reason: str | None = None
    requested_at: datetime | None = None
    requested_by: str | None = None
    finished_at: datetime | None = None
    verdict: Verdict | None = None
    basis: Basis | None = None
    assurance: Assurance | None = None
    provenance: str | None = None
    is_retryable: bool | None = None
    is_in_force: bool | None = None
    why_not_in_force: str | None = None
    device: str | None = None
    worker: str | None = None
    seconds: float | None = None
    bytes_total: int | None = None
    bytes_read: int | None = None
    given_at: datetime | None = None
    attempts_total: int | None = None
    progress: Progress | None = None
    attempts: tuple["Attempt", ...] = ()
    checks: tuple["Check", ...] = ()
    findings: tuple["Finding", ...] = ()
    findings_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint: three facts that do not depend on each other, and its validation."""

    id: int
    run: str
    step: int
    save_id: str
    lifecycle: str
    branch: int = 0
    store: str | None = None
    path: str | None = None
    url: str | None = None
    created_at: datetime | None = None
    registered_at: datetime | None = None
    format: str | None = None
    num_files: int | None = None
    bytes_total: int | None = None
    superseded_by: str | None = None
    verdict: Verdict | None = None
    basis: Basis | None = None
    assurance: Assurance | None = None
    provenance: str | None = None
    device: str | None = None
    validated_at: datetime | None = None
    verdict_validation_id: int | None = None
    holds: tuple[str, ...] = ()
    validation_state: str | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A rectangular part of a tensor, in elements."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact found, as `check --json` writes it (docs/report.md)."""

    code: str
    severity: str
    message: str
    check: str | None = None
    basis: str | None = None
    file: str | None = None
    fqn: str | None = None
    slice: Slice | None = None
    record: str | None = None
    offset: int | None = None
    length_bytes: int | None = None
    expected: str | None = None
    observed: str | None = None
    is_retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How one check ended."""

    name: str
    status: str
    reason: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None
    bytes_read: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldFact:
    """A hold, and who set it, when and why."""

    hold: str
    reason: str | None = None
    by: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a checkpoint."""

    name: str
    identity: str | None = None
    num_files: int | None = None
    bytes_total: int | None = None
    registered_by: str | None = None
    is_from_writer: bool = False
    registered_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDetail(Checkpoint):
    """A checkpoint with everything that is known of it.

    Args:
        in_force: The validation whose verdict is in force, with checks and first findings.
        hold_facts: Its holds, with reasons.
        history: Its validations, newest first; the newest of them.
    """

    parts: tuple[Part, ...] = ()
    expected_parts: tuple[str, ...] = ()
    in_force: Validation | None = None
    hold_facts: tuple[HoldFact, ...] = ()
    history: tuple[Validation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _DetailAsSent:
    verdict: Validation | None = None
    holds: tuple[HoldFact, ...] = ()


def read_checkpoint_detail(value: Any) -> CheckpointDetail:  # noqa: ANN401 - a JSON value
    """Read one checkpoint by itself: verdict and holds come with their stories.

    Raises:
        ServiceError: It is not of this version.
    """
    told = decode(_DetailAsSent, value, at="answer")
    flat = {
        **value,
        "verdict": None if told.verdict is None else encode(told.verdict.verdict),
        "holds": [fact.hold for fact in told.holds],
    }
    seen = decode(CheckpointDetail, flat, at="answer")
    return replace(seen, in_force=told.verdict, hold_facts=told.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What came of a registration.

    Args:
        validation: Asked for by it; None: none was wanted, or parts are missing.
        is_new: It was not registered before.
        superseded: Checkpoints whose bytes this one overwrites.
        notes: For a person.
    """

    checkpoint: Checkpoint
    validation: Validation | None = None
    is_new: bool = True
    superseded: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What came of the report of a start.

    Args:
        branch: The run's current one.
        opened: This start opened it: the run went back.
    """

    branch: int
    opened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeen:
    """What a verdict binds to, of one file."""

    path: str
    length_bytes: int
    checksum: str | None = None
    version: str | None = None
    modified_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact of the audit."""

    id: int
    at: datetime
    kind: str
    actor: str
    run: str | None = None
    checkpoint_id: int | None = None
    validation_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a person wrote about a checkpoint; `id` is that of its event."""

    id: int
    checkpoint_id: int
    at: datetime
    actor: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a worker does; nothing but the fact for work of another project."""

    expires_at: datetime
    run: str | None = None
    checkpoint_id: int | None = None
    step: int | None = None
    validation_id: int | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker, and what it does."""

    name: str
    seen_at: datetime
    first_seen_at: datetime | None = None
    age_s: float | None = None
    is_draining: bool = False
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    doing: "Doing | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A storage root that the operator allows."""

    name: str
    url: str
    times: str | None = None
    settle_s: float | None = None
    mtime_tolerance_s: float | None = None
    scrub_every_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token without its secret."""

    id: int
    name: str
    scopes: tuple[str, ...]
    hint: str | None = None
    project: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(TokenRow):
    """A token as POST gives it: the only time that its secret is shown."""

    token: str = field(repr=False)

"""Validations in answers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Row

from ckptguard.model.finding import Basis
from ckptguard.model.policy import Depth
from ckptguard.model.service import AttemptEnding, ValidationReason, ValidationState
from ckptguard.model.verdict import Assurance, CheckStatus, Provenance, Verdict
from ckptguard_api.repositories.history import VERDICT_COLUMNS
from ckptguard_api.use_cases.history import ValidationDetail


class ProgressAnswer(BaseModel):
    """How far a running validation is."""

    state: ValidationState
    bytes_done: int
    bytes_total: int | None
    bytes_per_s: float | None
    eta_s: float | None


class AttemptAnswer(BaseModel):
    """One try at a validation."""

    number: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    ending: AttemptEnding | None
    reason: str | None
    is_counted: bool
    new_files: int
    bytes_read: int


class CheckAnswer(BaseModel):
    """How one check ended."""

    name: str
    status: CheckStatus
    reason: str
    counts: Mapping[str, int]
    seconds: float
    bytes_read: int


class ValidationAnswer(BaseModel):
    """A request for a verdict, and the verdict where there is one."""

    id: int
    checkpoint_id: int
    run: str
    branch: int
    step: int
    reason: ValidationReason
    depth: Depth
    requested_by: str
    requested_at: datetime
    state: ValidationState
    counted_attempts: int
    attempts_total: int
    finished_at: datetime | None
    verdict: Verdict | None
    basis: Basis | None
    assurance: Assurance | None
    provenance: Provenance | None
    is_retryable: bool | None
    is_in_force: bool | None
    why_not_in_force: str | None
    bytes_identity: str | None
    device: str | None
    format: str | None
    versions: Mapping[str, Any] | None
    worker: str | None
    seconds: float | None
    seconds_reading: float | None
    bytes_total: int | None
    bytes_read: int | None
    totals: Mapping[str, Any] | None
    given_at: datetime | None
    progress: ProgressAnswer | None = None


class ValidationDetailAnswer(ValidationAnswer):
    """A validation with its attempts and checks."""

    attempts: list[AttemptAnswer]
    checks: list[CheckAnswer]
    findings_total: int


class VerdictAnswer(ValidationDetailAnswer):
    """The validation whose verdict is in force, with the first of its findings."""

    findings: list[dict[str, Any]]


def validation_fields(detail: ValidationDetail) -> dict[str, Any]:
    """Return the fields of a `ValidationAnswer`."""
    row = detail.row
    names = {*ValidationAnswer.model_fields} - {"attempts_total", "progress", *VERDICT_COLUMNS}
    fields = {name: getattr(row, name) for name in (*names, *VERDICT_COLUMNS)}
    progress = detail.progress
    fields["attempts_total"] = row.attempts
    fields["progress"] = None if progress is None else progress_answer(row.state, progress)
    return fields


def progress_answer(state: str, progress: Any) -> ProgressAnswer:  # noqa: ANN401 - `Progress` or a row
    """Return how far a validation is."""
    return ProgressAnswer(
        state=ValidationState(state),
        bytes_done=progress.bytes_done,
        bytes_total=progress.bytes_total,
        bytes_per_s=progress.bytes_per_s,
        eta_s=progress.eta_s,
    )


def validation_answer(detail: ValidationDetail) -> ValidationAnswer:
    """Return a validation as lists show it."""
    return ValidationAnswer(**validation_fields(detail))


def validation_detail_answer(detail: ValidationDetail) -> ValidationDetailAnswer:
    """Return a validation by itself."""
    return ValidationDetailAnswer(**validation_fields(detail), **_detail_fields(detail))


def verdict_answer(detail: ValidationDetail) -> VerdictAnswer:
    """Return the verdict in force."""
    findings = [finding_answer(row) for row in detail.findings]
    return VerdictAnswer(**validation_fields(detail), **_detail_fields(detail), findings=findings)


def finding_answer(row: Row[Any]) -> dict[str, Any]:
    """Return a finding as docs/report.md describes it, with its number."""
    return {**row.value, "number": row.number, "is_about_checkpoint": row.is_about_checkpoint}


def _detail_fields(detail: ValidationDetail) -> dict[str, Any]:
    return {
        "attempts": [_of(AttemptAnswer, row) for row in detail.attempts],
        "checks": [_of(CheckAnswer, row) for row in detail.checks],
        "findings_total": detail.findings_total,
    }


def _of(answer: type[BaseModel], row: Row[Any]) -> BaseModel:
    return answer(**{name: getattr(row, name) for name in answer.model_fields})

"""The report: a verdict with all its evidence, and its one JSON form (`schema: 1`)."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ckptguard.model.checksum import Checksum
from ckptguard.model.finding import Finding
from ckptguard.model.verdict import CheckResult, Judgement, Provenance, derive_judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvidence:
    """What was seen of one file; a verdict binds to these."""

    path: str
    length_bytes: int
    checksum: Checksum | None = None
    version: str | None = None
    modified_at: datetime | None = None


class TensorNumerics(NamedTuple):
    """What check 7 measured of one tensor, over all its slices; a million of them are made.

    Args:
        minimum: Smallest value; NaN if any element is NaN.
        maximum: Largest value; NaN if any element is NaN.
        is_finite: Neither NaN nor infinity anywhere.
        is_zero: Every element is 0.
        is_denormal: Not zero, and every magnitude below the dtype's smallest normal number.
    """

    minimum: float
    maximum: float
    is_finite: bool
    is_zero: bool
    is_denormal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One step of a folder of steps, as far as names and listing tell."""

    step: int
    path: str
    format: str
    is_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one validation found.

    Args:
        target: What was asked, as the user wrote it.
        path: What was checked: the store's URL and the folder in it.
        format: Adapter names of the parts, joined by `+`.
        checks: One result per check of design §3, in its order.
        seconds_reading: From the first to the last byte read.
        other_findings: Findings about the surroundings (pointers, other steps), which
            say nothing about this checkpoint and do not enter the verdict.
        tensor_list: Its tensors (`model.tensor_list`); empty where nobody asked for them.
    """

    target: str
    path: str
    format: str
    checks: tuple[CheckResult, ...]
    provenance: Provenance
    device: str | None
    started_at: datetime
    seconds: float
    seconds_reading: float
    num_shards: int
    num_items: int
    num_tensors: int
    bytes_total: int
    bytes_read: int
    step: int | None = None
    steps: tuple[StepSummary, ...] = ()
    files: tuple[FileEvidence, ...] = ()
    numerics: Mapping[str, TensorNumerics] = field(default_factory=dict)
    other_findings: tuple[Finding, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    manifest_identity: Checksum | None = None
    tensor_list: bytes = field(default=b"", repr=False)

    @property
    def judgement(self) -> Judgement:
        """The verdict, always derived, never stored."""
        return derive_judgement(self.checks)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings that enter the verdict, in the order of the checks."""
        return tuple(finding for check in self.checks for finding in check.findings)


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON values; all keys always present (design §9)."""
    sliced = None
    if finding.slice_offsets is not None:
        sliced = {"offsets": list(finding.slice_offsets), "sizes": list(finding.slice_sizes or ())}
    return {
        "code": finding.code.value,
        "check": finding.check.value,
        "severity": finding.severity.value,
        "basis": finding.basis.value if finding.basis else None,
        "file": finding.file,
        "fqn": finding.fqn,
        "slice": sliced,
        "record": finding.record,
        "offset": finding.offset,
        "length_bytes": finding.length_bytes,
        "expected": finding.expected,
        "observed": finding.observed,
        "is_retryable": finding.is_retryable,
        "message": finding.message,
    }


def report_to_json(report: Report) -> dict[str, Any]:
    """Return the documented, versioned object of `check --json` (docs/report.md)."""
    judgement = report.judgement
    return {
        "schema": 1,
        "target": report.target,
        "path": report.path,
        "verdict": judgement.verdict.value,
        "basis": judgement.basis.value if judgement.basis else None,
        "assurance": judgement.assurance.value if judgement.assurance else None,
        "is_retryable": judgement.is_retryable,
        "provenance": report.provenance.value,
        "device": report.device,
        "format": report.format,
        "step": report.step,
        "steps": [
            {"step": s.step, "path": s.path, "format": s.format, "is_committed": s.is_committed}
            for s in report.steps
        ],
        "checks": [
            {
                "name": check.name.value,
                "status": check.status.value,
                "reason": check.reason,
                "counts": dict(check.counts),
                "seconds": check.seconds,
                "bytes_read": check.bytes_read,
            }
            for check in report.checks
        ],
        "findings": [finding_to_json(finding) for finding in report.findings],
        "other_findings": [finding_to_json(finding) for finding in report.other_findings],
        "files": [
            {
                "path": file.path,
                "length_bytes": file.length_bytes,
                "checksum": str(file.checksum) if file.checksum else None,
                "version": file.version,
                "modified_at": file.modified_at.isoformat() if file.modified_at else None,
            }
            for file in report.files
        ],
        "shards": report.num_shards,
        "items": report.num_items,
        "tensors": report.num_tensors,
        "bytes_total": report.bytes_total,
        "bytes_read": report.bytes_read,
        "seconds": report.seconds,
        "seconds_reading": report.seconds_reading,
        "started_at": report.started_at.isoformat(),
        "versions": dict(report.versions),
        "manifest_identity": str(report.manifest_identity) if report.manifest_identity else None,
    } | ({"tensor_list": b64encode(report.tensor_list).decode()} if report.tensor_list else {})

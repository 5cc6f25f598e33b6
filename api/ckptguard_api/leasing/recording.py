"""Writes a verdict with all its evidence, and puts it in force where the rule says so."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import zstandard
from sqlalchemy import Row

from ckptguard.model.finding import Finding, Severity
from ckptguard.model.policy import Depth
from ckptguard.model.report import Report, finding_to_json, report_to_json
from ckptguard.model.service import EventKind, ValidationState
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.attempt_rules import retry_pause_s
from ckptguard_api.domain.bytes_seen import bytes_seen
from ckptguard_api.domain.storable_text import storable, storable_json
from ckptguard_api.domain.tensor_lists import kept_tensors
from ckptguard_api.domain.verdict_in_force import ABOUT_THE_BYTES, Decision, Standing, replaces
from ckptguard_api.leasing.in_force import put_in_force
from ckptguard_api.leasing.queue import is_wanted, subject_of
from ckptguard_api.repositories import verdicts
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.file_results import delete_file_results
from ckptguard_api.repositories.judged_checkpoints import note_verdict
from ckptguard_api.repositories.registered_parts import are_all_from_writer
from ckptguard_api.repositories.retries import retries_in_a_row
from ckptguard_api.repositories.validations import ValidationRow, set_state
from ckptguard_api.settings import Settings

_MAX_DEVICE_CHARS: Final = 64
_MAX_FORMAT_CHARS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The answer to a verdict.

    Args:
        verdict: As the service derived it.
        is_in_force: It is the one that a resume target may show.
    """

    verdict: str
    is_in_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Giver:
    """Which attempt of which worker gives a verdict; None: the service itself."""

    attempt_id: int | None = None
    worker_id: int | None = None


def record_verdict(
    tx: Transaction,
    checkpoint: Row[Any],
    validation: ValidationRow,
    *,
    report: Report,
    giver: Giver,
    settings: Settings,
) -> Given:
    """Finish a validation whose run, checkpoint and own row are locked.

    Guarantees: the verdict is derived from the checks here; what the report says of it is not looked at.
    Where time alone may change it, the checkpoint says when it is asked for again.
    """
    new = _standing(validation, report)
    decision = _decide(tx, checkpoint, new)
    retry_at = _retry_at(tx, checkpoint, decision, report, settings)
    values = _verdict_values(tx, checkpoint, new, report) | {
        "validation_id": validation.id,
        "attempt_id": giver.attempt_id,
        "worker_id": giver.worker_id,
        "is_in_force": decision.is_in_force,
        "why_not_in_force": decision.why or None,
        "given_at": tx.now,
    }
    verdicts.insert_verdict(tx, values)
    _insert_details(tx, validation.id, report)
    delete_file_results(tx, validation.id)
    set_state(tx, validation, ValidationState.FINISHED, finished_at=tx.now, waited_until=None)
    note_verdict(tx, checkpoint.id, retry_at=retry_at)
    told = {key: values[key] for key in ("verdict", "basis", "assurance", "is_in_force", "why_not_in_force")}
    told["retry_at"] = None if retry_at is None else retry_at.isoformat()
    record(tx, EventKind.VALIDATION_FINISHED, about=subject_of(validation), data=told)
    in_force = validation.id if decision.is_in_force else decision.reinstates
    if in_force is not None:
        put_in_force(tx, checkpoint, in_force)
    return Given(verdict=new.verdict.value, is_in_force=decision.is_in_force)


def _decide(tx: Transaction, checkpoint: Row[Any], new: Standing) -> Decision:
    if not is_wanted(checkpoint):
        return Decision(is_in_force=False, why=f"the checkpoint is {checkpoint.lifecycle}")
    current = checkpoint.verdict_validation_id
    row = verdicts.find_verdict(tx, current) if current is not None else None
    damage = [verdicts.standing_of(row) for row in verdicts.damage_on_record(tx, checkpoint.id)]
    return replaces(verdicts.standing_of(row) if row is not None else None, new, damage=damage)


def _retry_at(
    tx: Transaction, checkpoint: Row[Any], decision: Decision, report: Report, settings: Settings
) -> datetime | None:
    """Return when to ask again; None: never by itself.

    Not where damage, danger or a broken rule stands: that only a person or newer checks change.
    """
    stands = report.judgement.verdict.value if decision.is_in_force else checkpoint.verdict
    is_condemned = stands == Verdict.INVALID.value or decision.reinstates is not None
    if not report.judgement.is_retryable or is_condemned or not is_wanted(checkpoint):
        return None
    retries = retries_in_a_row(tx, checkpoint.id, limit=settings.max_retries)
    if retries >= settings.max_retries:
        return None
    pause_s = retry_pause_s(retries, first_s=settings.retry_first_s, max_s=settings.retry_max_s)
    return tx.now + timedelta(seconds=pause_s)


def _standing(validation: ValidationRow, report: Report) -> Standing:
    judgement = report.judgement
    doubts = {finding.code for finding in report.findings if finding.severity is Severity.UNKNOWN}
    return Standing(
        validation_id=validation.id,
        verdict=judgement.verdict,
        basis=judgement.basis,
        assurance=judgement.assurance,
        depth=Depth(validation.depth),
        seen=bytes_seen(report.files),
        is_about_bytes=bool(doubts & ABOUT_THE_BYTES),
        checks_version=verdicts.checks_version(report.versions),
    )


def _verdict_values(tx: Transaction, checkpoint: Row[Any], new: Standing, report: Report) -> dict[str, Any]:
    return {
        "verdict": new.verdict.value,
        "basis": new.basis.value if new.basis else None,
        "assurance": new.assurance.value if new.assurance else None,
        "provenance": _provenance(tx, checkpoint, report).value,
        "is_retryable": report.judgement.is_retryable,
        "bytes_identity": new.seen.identity,
        "content_identity": new.seen.content,
        "device": storable(report.device)[:_MAX_DEVICE_CHARS] if report.device is not None else None,
        "format": storable(report.format)[:_MAX_FORMAT_CHARS],
        "versions": storable_json(report.versions),
        "seconds": report.seconds,
        "seconds_reading": report.seconds_reading,
        "bytes_total": report.bytes_total,
        "bytes_read": report.bytes_read,
        "totals": {"shards": report.num_shards, "items": report.num_items, "tensors": report.num_tensors},
    }


def _provenance(tx: Transaction, checkpoint: Row[Any], report: Report) -> Provenance:
    # A manifest that lies beside the shards was written by whoever wrote there; only one that the writer
    # itself sent says what was in its memory (design §3).
    if report.provenance is Provenance.PROVEN and not are_all_from_writer(tx, checkpoint):
        return Provenance.UNCHANGED
    return report.provenance


def _insert_details(tx: Transaction, validation_id: int, report: Report) -> None:
    rows = [
        {
            "validation_id": validation_id,
            "name": check.name.value,
            "status": check.status.value,
            "reason": storable(check.reason),
            "counts": storable_json(check.counts),
            "seconds": check.seconds,
            "bytes_read": check.bytes_read,
        }
        for check in report.checks
    ]
    verdicts.insert_check_results(tx, rows)
    verdicts.insert_findings(tx, list(_finding_rows(validation_id, report)))
    files = json.dumps(report_to_json(report)["files"], separators=(",", ":")).encode()
    body = zstandard.ZstdCompressor().compress(files)
    verdicts.insert_evidence(tx, validation_id, body=body, num_files=len(report.files))
    if report.tensor_list:
        tensors = kept_tensors(report.tensor_list)
        verdicts.insert_tensor_list(tx, validation_id, body=tensors.body, num_tensors=tensors.count)


def _finding_rows(validation_id: int, report: Report) -> Iterator[dict[str, Any]]:
    about_checkpoint = [(finding, True) for finding in report.findings]
    others = [(finding, False) for finding in report.other_findings]
    for number, (finding, is_about_checkpoint) in enumerate(about_checkpoint + others):
        yield _finding_row(finding) | {
            "validation_id": validation_id,
            "number": number,
            "is_about_checkpoint": is_about_checkpoint,
        }


def _finding_row(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code.value,
        "check": finding.check.value,
        "severity": finding.severity.value,
        "file": storable(finding.file) if finding.file is not None else None,
        "fqn": storable(finding.fqn) if finding.fqn is not None else None,
        "message": storable(finding.message),
        "value": storable_json(finding_to_json(finding)),
    }

"""What the service answers where no worker could."""

from typing import Any

from sqlalchemy import Row

from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import Report
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance
from ckptguard_api.database import Transaction
from ckptguard_api.leasing.recording import Giver, record_verdict
from ckptguard_api.repositories.validations import ValidationRow
from ckptguard_api.settings import Settings


def give_up(
    tx: Transaction, checkpoint: Row[Any], validation: ValidationRow, *, last_reason: str, settings: Settings
) -> None:
    """Finish a validation with UNKNOWN(`worker_lost`), which time may change."""
    message = f"{validation.attempts} attempts ended without a verdict; the last: {last_reason}"
    finding = Finding(
        code=FindingCode.WORKER_LOST,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=message,
        observed=last_reason,
        is_retryable=True,
    )
    check = CheckResult(
        name=CheckName.EXISTENCE, status=CheckStatus.UNKNOWN, reason=message, findings=(finding,)
    )
    report = Report(
        target=checkpoint.location,
        path=checkpoint.location,
        format=checkpoint.format or "unknown",
        checks=(check,),
        provenance=Provenance.UNPROVEN,
        device=None,
        started_at=tx.now,
        seconds=0.0,
        seconds_reading=0.0,
        num_shards=0,
        num_items=0,
        num_tensors=0,
        bytes_total=checkpoint.bytes_total or 0,
        bytes_read=0,
    )
    record_verdict(tx, checkpoint, validation, report=report, giver=Giver(), settings=settings)

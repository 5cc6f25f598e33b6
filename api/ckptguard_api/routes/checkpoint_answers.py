"""Checkpoints in answers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Row

from ckptguard.model.finding import Basis
from ckptguard.model.service import Hold, Lifecycle, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.repositories.checkpoint_list import HOLD_COLUMNS, CheckpointRow
from ckptguard_api.routes.validation_answers import (
    ValidationAnswer,
    VerdictAnswer,
    validation_answer,
    verdict_answer,
)
from ckptguard_api.use_cases.history import CheckpointDetail


class _Checkpoint(BaseModel):
    id: int
    run: str
    branch: int
    step: int
    save_id: str
    store: str
    path: str
    url: str
    created_at: datetime
    registered_at: datetime | None
    format: str | None
    num_files: int | None
    bytes_total: int | None
    lifecycle: Lifecycle
    superseded_by: SupersededBy | None
    keep_alive_until: datetime | None
    basis: Basis | None
    assurance: Assurance | None
    provenance: Provenance | None
    device: str | None
    verdict_validation_id: int | None
    validated_at: datetime | None
    validation_state: ValidationState | None
    retry_at: datetime | None


class CheckpointAnswer(_Checkpoint):
    """A checkpoint: lifecycle, verdict in force and holds do not depend on each other."""

    verdict: Verdict | None
    holds: list[Hold]


class PartAnswer(BaseModel):
    """One part; `identity` is that of its manifest."""

    name: str
    identity: str | None
    num_files: int | None
    bytes_total: int | None
    registered_by: str
    is_from_writer: bool
    registered_at: datetime


class HoldAnswer(BaseModel):
    """A hold, and who set it, when and why."""

    hold: Hold
    reason: str | None
    by: str | None
    at: datetime | None


class CheckpointDetailAnswer(_Checkpoint):
    """Everything about a checkpoint; `history_next` is a cursor of its list of validations."""

    expected_parts: list[str]
    parts: list[PartAnswer]
    verdict: VerdictAnswer | None
    holds: list[HoldAnswer]
    history: list[ValidationAnswer]
    history_next: str | None


def checkpoint_answer(row: CheckpointRow) -> CheckpointAnswer:
    """Return a checkpoint as lists show it.

    Args:
        row: Of `checkpoints`, with `run` and `store`, the names (`find_checkpoint` gives it so).
    """
    holds = [hold for hold, column in HOLD_COLUMNS.items() if getattr(row, column)]
    return CheckpointAnswer(**_fields(row), verdict=row.verdict, holds=holds)


def checkpoint_detail_answer(detail: CheckpointDetail) -> CheckpointDetailAnswer:
    """Return a checkpoint by itself."""
    row = detail.row
    in_force = detail.in_force
    return CheckpointDetailAnswer(
        **_fields(row),
        expected_parts=row.expected_parts,
        parts=[_part(part) for part in detail.parts],
        verdict=None if in_force is None else verdict_answer(in_force),
        holds=_holds(detail.holds),
        history=[validation_answer(validation) for validation in detail.history.items],
        history_next=detail.history.next,
    )


def _fields(row: CheckpointRow) -> dict[str, Any]:
    names = {*_Checkpoint.model_fields} - {"url"}
    is_tried_again = row.lifecycle == Lifecycle.REGISTERED.value
    derived = {"url": row.location, "retry_at": row.retry_at if is_tried_again else None}
    return {name: getattr(row, name) for name in names} | derived


def _part(row: Row[Any]) -> PartAnswer:
    return PartAnswer(**{name: getattr(row, name) for name in PartAnswer.model_fields})


def _holds(holds: Mapping[Hold, Row[Any] | None]) -> list[HoldAnswer]:
    return [
        HoldAnswer(hold=hold, reason=None, by=None, at=None)
        if event is None
        else HoldAnswer(hold=hold, reason=event.data.get("reason"), by=event.actor, at=event.at)
        for hold, event in holds.items()
    ]

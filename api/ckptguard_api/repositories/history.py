"""What was found about checkpoints: validations with their verdicts, checks, findings, parts, holds."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Row, Select, select

from ckptguard.errors import NotFoundError
from ckptguard.model.service import EventKind, Hold
from ckptguard_api.database import Transaction
from ckptguard_api.domain.paging import Query
from ckptguard_api.repositories.windows import Listing
from ckptguard_api.tables import (
    attempts,
    check_results,
    events,
    evidence,
    findings,
    manifests,
    parts,
    runs,
    tensor_lists,
    validations,
    verdicts,
    workers,
)

ValidationRow = Row[Any]
"""All columns of `validations`, `run`, and of its verdict what `VERDICT_COLUMNS` names; None: none yet."""

VERDICT_COLUMNS: Final = (
    "verdict",
    "basis",
    "assurance",
    "provenance",
    "is_retryable",
    "is_in_force",
    "why_not_in_force",
    "bytes_identity",
    "device",
    "format",
    "versions",
    "seconds",
    "seconds_reading",
    "bytes_total",
    "bytes_read",
    "totals",
    "given_at",
)
_MAX_HELD_EVENTS: Final = 1000


def validation_listing(checkpoint_id: int) -> Listing:
    """Return the list of the validations of a checkpoint."""
    return Listing(
        query=Query(name=f"validations/{checkpoint_id}", filters={}, kinds=(int,)),
        rows=_with_verdict(),
        served=[validations.c.checkpoint_id == checkpoint_id],
        order=[validations.c.id],
    )


def find_validation(tx: Transaction, project_id: int, validation_id: int) -> ValidationRow:
    """Return a validation of this project.

    Raises:
        NotFoundError: There is none; one of another project is none.
    """
    statement = _with_verdict().where(
        validations.c.id == validation_id, validations.c.project_id == project_id
    )
    row = tx.execute(statement).one_or_none()
    if row is None:
        msg = "no such validation"
        raise NotFoundError(msg)
    return row


def last_judged(tx: Transaction, checkpoint_id: int) -> int | None:
    """Return the last validation of a checkpoint that has a verdict, in force or not; None: there is none."""
    statement = (
        select(validations.c.id)
        .join(verdicts, verdicts.c.validation_id == validations.c.id)
        .where(validations.c.checkpoint_id == checkpoint_id)
        .order_by(validations.c.id.desc())
        .limit(1)
    )
    found: int | None = tx.execute(statement).scalar_one_or_none()
    return found


def attempts_of(tx: Transaction, validation_ids: Collection[int], *, limit: int) -> Sequence[Row[Any]]:
    """Return the last attempts at these validations with `worker`, its name; oldest first."""
    statement = (
        select(attempts, workers.c.name.label("worker"))
        .join(workers, workers.c.id == attempts.c.worker_id)
        .where(attempts.c.validation_id.in_(validation_ids))
        .order_by(attempts.c.id.desc())
        .limit(limit)
    )
    return tx.execute(statement).all()[::-1]


def checks_of(tx: Transaction, validation_id: int) -> Sequence[Row[Any]]:
    """Return how each check of a validation ended, in their order."""
    statement = select(check_results).where(check_results.c.validation_id == validation_id)
    return tx.execute(statement.order_by(check_results.c.id)).all()


def finding_rows(
    tx: Transaction, validation_id: int, *, after: int, limit: int, is_about_checkpoint: bool | None = None
) -> Sequence[Row[Any]]:
    """Return findings of a validation in their order.

    Args:
        tx: Where.
        validation_id: Whose.
        after: Number of the last one seen; -1: none.
        limit: How many at most.
        is_about_checkpoint: Only those that are, or are not; None: all.
    """
    statement = select(findings).where(findings.c.validation_id == validation_id, findings.c.number > after)
    if is_about_checkpoint is not None:
        statement = statement.where(findings.c.is_about_checkpoint.is_(is_about_checkpoint))
    return tx.execute(statement.order_by(findings.c.number).limit(limit)).all()


def last_finding_number(tx: Transaction, validation_id: int) -> int:
    """Return the number of the last finding, from 0; -1 where there is none: it counts them in one step."""
    statement = select(findings.c.number).where(findings.c.validation_id == validation_id)
    number: int | None = tx.execute(
        statement.order_by(findings.c.number.desc()).limit(1)
    ).scalar_one_or_none()
    return -1 if number is None else number


def evidence_of(tx: Transaction, validation_id: int) -> Row[Any] | None:
    """Return `body` and `num_files` of the evidence, or None."""
    statement = select(evidence).where(evidence.c.validation_id == validation_id)
    return tx.execute(statement).one_or_none()


def tensor_list_of(tx: Transaction, validation_id: int) -> Row[Any] | None:
    """Return `body` and `num_tensors` of what a validation saw of tensors, or None."""
    statement = select(tensor_lists).where(tensor_lists.c.validation_id == validation_id)
    return tx.execute(statement).one_or_none()


def parts_of(tx: Transaction, checkpoint_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return the parts of a checkpoint with `num_files` and `bytes_total` of their manifests, by name."""
    statement = (
        select(parts, manifests.c.num_files, manifests.c.bytes_total)
        .outerjoin(manifests, manifests.c.id == parts.c.manifest_id)
        .where(parts.c.checkpoint_id == checkpoint_id)
        .order_by(parts.c.name)
        .limit(limit)
    )
    return tx.execute(statement).all()


def manifest_of(tx: Transaction, checkpoint_id: int, part: str) -> Row[Any] | None:
    """Return `header`, `identity` and `body` of the manifest of a part, or None."""
    statement = (
        select(parts.c.header, parts.c.identity, manifests.c.body)
        .join(manifests, manifests.c.id == parts.c.manifest_id)
        .where(parts.c.checkpoint_id == checkpoint_id, parts.c.name == part)
    )
    return tx.execute(statement).one_or_none()


def last_held(tx: Transaction, checkpoint_id: int) -> Mapping[Hold, Row[Any]]:
    """Return the last event that set each hold."""
    statement = (
        select(events)
        .where(events.c.checkpoint_id == checkpoint_id, events.c.kind == EventKind.CHECKPOINT_HELD.value)
        .order_by(events.c.id.desc())
        .limit(_MAX_HELD_EVENTS)
    )
    found: dict[Hold, Row[Any]] = {}
    for row in tx.execute(statement):
        found.setdefault(Hold(row.data["hold"]), row)
    return found


def _with_verdict() -> Select[Any]:
    return (
        select(
            *validations.c,
            runs.c.name.label("run"),
            *(verdicts.c[name] for name in VERDICT_COLUMNS),
            workers.c.name.label("worker"),
        )
        .outerjoin(runs, runs.c.id == validations.c.run_id)
        .outerjoin(verdicts, verdicts.c.validation_id == validations.c.id)
        .outerjoin(workers, workers.c.id == verdicts.c.worker_id)
    )

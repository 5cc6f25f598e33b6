"""Verdicts with their checks, findings and evidence; rows are added and never changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, exists, insert, select

from ckptguard.model.finding import Basis
from ckptguard.model.policy import Depth
from ckptguard.model.service import EventKind
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.bytes_seen import BytesSeen
from ckptguard_api.domain.verdict_in_force import Standing
from ckptguard_api.tables import (
    check_results,
    events,
    evidence,
    findings,
    tensor_lists,
    validations,
    verdicts,
)

VerdictRow = Row[Any]
"""A row of `verdicts`, all columns, with `depth` of its validation."""


def find_verdict(tx: Transaction, validation_id: int) -> VerdictRow | None:
    """Return the verdict of a validation, or None."""
    return tx.execute(_with_depth().where(verdicts.c.validation_id == validation_id)).one_or_none()


def verdicts_of(tx: Transaction, checkpoint_id: int) -> list[VerdictRow]:
    """Return all verdicts on a checkpoint, newest first."""
    statement = _with_depth().where(validations.c.checkpoint_id == checkpoint_id)
    return list(tx.execute(statement.order_by(verdicts.c.validation_id.desc())).all())


def damage_on_record(tx: Transaction, checkpoint_id: int) -> list[VerdictRow]:
    """Return every verdict of damage on a checkpoint that no operator lifted, newest first.

    The audit is the record of a lift: an event `checkpoint.released` about the validation.
    """
    lifted = exists().where(
        events.c.checkpoint_id == checkpoint_id,
        events.c.kind == EventKind.CHECKPOINT_RELEASED.value,
        events.c.validation_id == verdicts.c.validation_id,
    )
    statement = _with_depth().where(
        validations.c.checkpoint_id == checkpoint_id, verdicts.c.basis == Basis.DAMAGE.value, ~lifted
    )
    return list(tx.execute(statement.order_by(verdicts.c.validation_id.desc())).all())


def standing_of(row: VerdictRow) -> Standing:
    """Return a stored verdict as the rule of the verdict in force looks at it."""
    return Standing(
        validation_id=row.validation_id,
        verdict=Verdict(row.verdict),
        basis=Basis(row.basis) if row.basis else None,
        assurance=Assurance(row.assurance) if row.assurance else None,
        depth=Depth(row.depth),
        seen=BytesSeen(identity=row.bytes_identity, content=row.content_identity),
        checks_version=checks_version(row.versions),
    )


def checks_version(versions: Mapping[str, str]) -> int:
    """Return the version of the checks that a report names; 0 where it names none."""
    text = versions.get("checks", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0  # noqa: PLR2004 - of int


def insert_verdict(tx: Transaction, values: Mapping[str, Any]) -> None:
    """Add the verdict of a validation.

    Raises:
        IntegrityError: It has one: one at most, whatever the code does.
    """
    tx.execute(insert(verdicts).values(dict(values)))


def insert_check_results(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add how each check of a validation ended."""
    if rows:
        tx.execute(insert(check_results), [dict(row) for row in rows])


def insert_findings(tx: Transaction, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add what a validation found."""
    if rows:
        tx.execute(insert(findings), [dict(row) for row in rows])


def insert_evidence(tx: Transaction, validation_id: int, *, body: bytes, num_files: int) -> None:
    """Add what was seen of each file: zstd of the JSON of a report's `files`."""
    tx.execute(insert(evidence).values(validation_id=validation_id, body=body, num_files=num_files))


def insert_tensor_list(tx: Transaction, validation_id: int, *, body: bytes, num_tensors: int) -> None:
    """Add the tensors that a validation saw, as `domain.tensor_lists` packs them."""
    tx.execute(insert(tensor_lists).values(validation_id=validation_id, body=body, num_tensors=num_tensors))


def _with_depth() -> Any:  # noqa: ANN401 - a select
    return select(verdicts, validations.c.depth).join(
        validations, validations.c.id == verdicts.c.validation_id
    )

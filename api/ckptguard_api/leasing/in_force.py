"""Puts a recorded verdict in force, and tells of it only where something changed."""

from typing import Any

from sqlalchemy import Row

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.judged_checkpoints import set_verdict_in_force
from ckptguard_api.repositories.verdicts import find_verdict


def put_in_force(
    tx: Transaction,
    checkpoint: Row[Any],
    validation_id: int,
    *,
    actor: Actor = SERVICE,
    why: str | None = None,
) -> None:
    """Let the verdict of a validation be the one of its checkpoint, whose row is locked."""
    given = find_verdict(tx, validation_id)
    assert given is not None  # noqa: S101 - recorded by this transaction, or on record
    set_verdict_in_force(tx, checkpoint.id, given)
    before = {"verdict": checkpoint.verdict, "basis": checkpoint.basis, "assurance": checkpoint.assurance}
    after = {"verdict": given.verdict, "basis": given.basis, "assurance": given.assurance}
    if before == after:
        return
    about = Subject(
        project_id=checkpoint.project_id,
        run_id=checkpoint.run_id,
        checkpoint_id=checkpoint.id,
        validation_id=validation_id,
    )
    names = {"step": checkpoint.step, "save_id": checkpoint.save_id}
    data = names | after | {"was": before} | ({"why": why} if why is not None else {})
    record(tx, EventKind.CHECKPOINT_VERDICT_CHANGED, about=about, data=data, actor=actor)

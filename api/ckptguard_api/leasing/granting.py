"""Turns a validation that was picked into a lease."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Row

from ckptguard.model.policy import Depth, NumericsMode, Policy, StoreTimes
from ckptguard.model.service import EventKind, ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.attempt_rules import deadline_s, lease_end
from ckptguard_api.leasing.lease import (
    Lease,
    LeasedCheckpoint,
    LeasedPart,
    LeasedStore,
    LeasedValidation,
    hash_of,
    new_token,
)
from ckptguard_api.leasing.queue import subject_of
from ckptguard_api.repositories import claims
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.file_results import count_file_results
from ckptguard_api.repositories.leases import LeaseRow, insert_lease
from ckptguard_api.repositories.registered_parts import parts_of
from ckptguard_api.repositories.runs import RunRow, touch_run
from ckptguard_api.repositories.validations import ValidationRow, set_state
from ckptguard_api.repositories.workers import WorkerRow, add_claim
from ckptguard_api.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What is to be leased, all locked, in the one order."""

    run: RunRow
    checkpoint: Row[Any]
    validation: ValidationRow


def grant(tx: Transaction, picked: Picked, worker: WorkerRow, *, actor: Actor, settings: Settings) -> Lease:
    """Start the next attempt and give it to this worker."""
    validation, run = picked.validation, picked.run
    store = claims.store_of(tx, validation.store_id)
    token = new_token()
    row = _insert(tx, picked, worker, store=store, token=token, settings=settings)
    attempt = validation.attempts + 1
    set_state(tx, validation, ValidationState.RUNNING, attempts=attempt, not_before=None)
    claims.note_turn(tx, run.id, tx.now)
    touch_run(tx, run.id)
    add_claim(tx, worker.id)
    lease = Lease(
        id=row.attempt_id,
        token=token,
        expires_at=row.expires_at,
        deadline_at=row.deadline_at,
        heartbeat_every_s=settings.heartbeat_every_s,
        stall_after_s=settings.stall_after_s,
        validation=LeasedValidation(id=validation.id, depth=validation.depth, attempt=attempt),
        checkpoint=_checkpoint(picked),
        store=LeasedStore(name=store.name, url=store.url, path=picked.checkpoint.path),
        policy=_policy(tx, picked, store),
        parts=_parts(tx, picked),
        known_files=count_file_results(tx, validation.id),
    )
    data = {"attempt": attempt, "worker": worker.name}
    record(tx, EventKind.VALIDATION_STARTED, actor=actor, about=subject_of(validation), data=data)
    return lease


def _insert(
    tx: Transaction, picked: Picked, worker: WorkerRow, *, store: Row[Any], token: str, settings: Settings
) -> LeaseRow:
    allowed_s = deadline_s(bytes_total=picked.checkpoint.bytes_total, bytes_per_s=store.bytes_per_s)
    deadline_at = tx.now + timedelta(seconds=allowed_s)
    expires_at = lease_end(
        tx.now,
        lease_s=settings.lease_s,
        progress_at=tx.now,
        stall_after_s=settings.stall_after_s,
        deadline_at=deadline_at,
    )
    return insert_lease(
        tx,
        validation=picked.validation,
        worker_id=worker.id,
        token_hash=hash_of(token),
        expires_at=expires_at,
        deadline_at=deadline_at,
    )


def _checkpoint(picked: Picked) -> LeasedCheckpoint:
    row = picked.checkpoint
    return LeasedCheckpoint(
        id=row.id, run=picked.run.name, step=row.step, save_id=row.save_id, created_at=row.created_at
    )


def _parts(tx: Transaction, picked: Picked) -> tuple[LeasedPart, ...]:
    return tuple(
        LeasedPart(name=part.name, identity=part.identity, is_from_writer=part.is_from_writer)
        for part in parts_of(tx, picked.checkpoint.id)
    )


def _policy(tx: Transaction, picked: Picked, store: Row[Any]) -> Policy:
    return Policy(
        depth=Depth(picked.validation.depth),
        numerics=NumericsMode(picked.run.numerics),
        allowed_globals=frozenset(claims.allowed_globals(tx, picked.run.project_id)),
        required_fqns=tuple(picked.run.required_fqns),
        settle_s=store.settle_s,
        mtime_tolerance_s=store.mtime_tolerance_s,
        times=StoreTimes(store.times),
    )

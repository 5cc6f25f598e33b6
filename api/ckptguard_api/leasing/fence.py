"""The fence: whoever writes shows the lease's own token while the lease lives, in the same transaction.

A worker that was thought dead and wakes up, a copy of a request that arrives late, a worker's token without
the lease's: none of them finds a live lease, and nothing is written.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from ckptguard.errors import LeaseLostError
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.repositories.leases import AttemptRow, LeaseRow, find_attempt, lock_lease
from ckptguard_api.repositories.runs import RunRow, lock_run
from ckptguard_api.repositories.validations import (
    ValidationRow,
    find_validation,
    lock_checkpoint,
    lock_validation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A live lease and all that it is about, locked in the one order."""

    run: RunRow
    checkpoint: Row[Any]
    validation: ValidationRow
    lease: LeaseRow


def find_own_attempt(tx: Transaction, key: LeaseKey, *, actor: Actor) -> tuple[AttemptRow, ValidationRow]:
    """Return the attempt, ended or not, that this key was given for; nothing is locked.

    Raises:
        LeaseLostError: There is none, it has another token, or it is not of the caller's project. Which
            of these is not told.
    """
    attempt = find_attempt(tx, key.id)
    validation = find_validation(tx, attempt.validation_id) if attempt is not None else None
    if attempt is None or validation is None or not key.opens(attempt.token_hash):
        raise _lost(key)
    if actor.project_id not in {None, validation.project_id}:
        raise _lost(key)
    return attempt, validation


def require_lease(tx: Transaction, key: LeaseKey, *, actor: Actor) -> LeaseRow:
    """Return the live lease, locked until the commit.

    Raises:
        LeaseLostError: It is over, or never was the caller's.
    """
    find_own_attempt(tx, key, actor=actor)
    return _live(tx, key)


def require_held(tx: Transaction, key: LeaseKey, *, actor: Actor) -> Held:
    """Return the live lease with its validation, checkpoint and run, all locked until the commit.

    Raises:
        LeaseLostError: It is over, or never was the caller's.
    """
    _, validation = find_own_attempt(tx, key, actor=actor)
    run = lock_run(tx, validation.run_id)
    checkpoint = lock_checkpoint(tx, validation.checkpoint_id)
    validation = lock_validation(tx, validation.id)
    return Held(run=run, checkpoint=checkpoint, validation=validation, lease=_live(tx, key))


def _live(tx: Transaction, key: LeaseKey) -> LeaseRow:
    lease = lock_lease(tx, key.id)
    if lease is None or lease.expires_at <= tx.now or not key.opens(lease.token_hash):
        raise _lost(key)
    return lease


def _lost(key: LeaseKey) -> LeaseLostError:
    return LeaseLostError(f"lease {key.id} is over, or is not yours; nothing was written")

"""A worker says that it lives, and how far it is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.model.service import AttemptEnding
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.attempt_rules import deadline_of_told_size, lease_end
from ckptguard_api.domain.storable_text import storable_json
from ckptguard_api.leasing.fence import find_own_attempt, require_lease
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.leasing.queue import is_wanted
from ckptguard_api.repositories.claims import store_of
from ckptguard_api.repositories.leases import AttemptRow, LeaseRow, extend_lease
from ckptguard_api.repositories.validations import find_checkpoint
from ckptguard_api.repositories.workers import see_worker
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings

MAX_FILE_CHARS: Final = 1024
"""Of the file's name in a progress; the rest is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an attempt is.

    Args:
        phase: E.g. `listing`, `reading`.
        bytes_done: Read so far, those of earlier attempts too.
        bytes_total: To read; None: not known yet.
        files_done: Read to their end.
        files_total: To read; None: not known yet.
        file: The one being read.
    """

    phase: str = ""
    bytes_done: int = 0
    bytes_total: int | None = None
    files_done: int = 0
    files_total: int | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The answer to a heartbeat.

    Args:
        expires_at: Of the lease, unless another heartbeat comes before.
        is_wanted: False: nobody wants the verdict any more, release the lease.
    """

    expires_at: datetime
    is_wanted: bool


def hear(services: Services, key: LeaseKey, *, progress: Progress, is_draining: bool, actor: Actor) -> Heard:
    """Extend a lease, never beyond its deadline nor beyond a standstill of `stall_after_s`.

    Raises:
        LeaseLostError: The lease is over, or is not the caller's.
    """
    with services.database.write() as tx:
        attempt, validation = find_own_attempt(tx, key, actor=actor)
        if attempt.ending == AttemptEnding.CANCELLED.value:
            return Heard(expires_at=tx.now, is_wanted=False)
        lease = require_lease(tx, key, actor=actor)
        checkpoint = find_checkpoint(tx, validation.checkpoint_id)
        deadline_at = _deadline_at(tx, lease, attempt, checkpoint, bytes_told=progress.bytes_total)
        expires_at = _extend(tx, lease, progress, services.settings, deadline_at=deadline_at)
        see_worker(tx, lease.worker_id, is_draining=is_draining)
        return Heard(expires_at=expires_at, is_wanted=is_wanted(checkpoint))


def _deadline_at(
    tx: Transaction, lease: LeaseRow, attempt: AttemptRow, checkpoint: Row[Any], *, bytes_told: int | None
) -> datetime:
    """Return the lease's deadline; what a checkpoint of unknown size has to read may shorten it."""
    if checkpoint.bytes_total is not None or not bytes_told:
        deadline_at: datetime = lease.deadline_at
        return deadline_at
    rate = store_of(tx, checkpoint.store_id).bytes_per_s
    return deadline_of_told_size(attempt.started_at, bytes_told=bytes_told, bytes_per_s=rate)


def _extend(
    tx: Transaction, lease: LeaseRow, progress: Progress, settings: Settings, *, deadline_at: datetime
) -> datetime:
    progress_at = tx.now if _has_advanced(lease.progress, progress) else lease.progress_at
    expires_at = lease_end(
        tx.now,
        lease_s=settings.lease_s,
        progress_at=progress_at,
        stall_after_s=settings.stall_after_s,
        deadline_at=deadline_at,
    )
    value = asdict(progress) | {"file": progress.file[:MAX_FILE_CHARS] if progress.file else None}
    extend_lease(
        tx,
        lease.attempt_id,
        expires_at=expires_at,
        progress_at=progress_at,
        deadline_at=deadline_at,
        progress=storable_json(value),
    )
    return expires_at


def _has_advanced(before: Mapping[str, Any], after: Progress) -> bool:
    is_further = after.bytes_done > before.get("bytes_done", 0)
    return bool(is_further or after.files_done > before.get("files_done", 0))

"""A validation as a person watches it: its history, and how far it is right now."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.model.service import ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.domain.files_going import FileGoing, files_going
from ckptguard_api.domain.packed_manifest import registered_lengths
from ckptguard_api.domain.resume import Progress
from ckptguard_api.repositories import history, running
from ckptguard_api.repositories.checkpoint_list import CheckpointRow, find_checkpoint
from ckptguard_api.services import Services
from ckptguard_api.use_cases.history import MAX_ATTEMPTS, MAX_PARTS

MAX_FILES_LISTED: Final = 100
"""Of a running validation, with what is shown again at each of its heartbeats."""
MAX_FILES_MAPPED: Final = 5_000
"""Beyond, files are only counted while a validation runs: a map of them costs the process too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """How far the live attempt is.

    Args:
        lease: With `progress`, `worker`, `number`, `started_at`, `seen_at`.
        progress: What its last heartbeat told.
        files: Of a checkpoint of few files: those that are known of.
    """

    lease: Row[Any]
    progress: Progress
    files: Sequence[FileGoing] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A validation.

    Args:
        now: Time to count ages to.
        row: Of the validation, with its verdict.
        checkpoint: That it is about.
        attempts: Last ones, newest first, each with the name of its worker.
        checks: How each ended; empty without a verdict.
        findings_total: Of its verdict.
        going: The live attempt; None: nobody works on it now.
    """

    now: datetime
    row: history.ValidationRow
    checkpoint: CheckpointRow
    attempts: Sequence[Row[Any]]
    checks: Sequence[Row[Any]]
    findings_total: int
    going: Going | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFiles:
    """The files of a validation while it is open.

    Args:
        checkpoint_id: Whose they are.
        is_open: Whether it is queued or running; else its verdict tells of its files.
        files: By path.
    """

    checkpoint_id: int
    is_open: bool
    files: tuple[FileGoing, ...]


def watch_validation(services: Services, *, project_id: int, validation_id: int) -> Watched:
    """Return one validation as it is now.

    Raises:
        NotFoundError: There is none; one of another project is none.

    Cost: bounded, however many files the checkpoint has.
    """
    with services.database.read() as tx:
        row = history.find_validation(tx, project_id, validation_id)
        checkpoint = find_checkpoint(tx, project_id, row.checkpoint_id)
        return Watched(
            now=tx.now,
            row=row,
            checkpoint=checkpoint,
            attempts=history.attempts_of(tx, [row.id], limit=MAX_ATTEMPTS)[::-1],
            checks=history.checks_of(tx, row.id),
            findings_total=history.last_finding_number(tx, row.id) + 1,
            going=_going(tx, checkpoint, row.id) if row.state == ValidationState.RUNNING else None,
        )


def going_of(services: Services, *, project_id: int, checkpoint_id: int) -> Going | None:
    """Return how far the running validation of a checkpoint is; None: nobody works on it now.

    Raises:
        NotFoundError: There is no such checkpoint.
    """
    with services.database.read() as tx:
        checkpoint = find_checkpoint(tx, project_id, checkpoint_id)
        if checkpoint.validation_state != ValidationState.RUNNING:
            return None
        validation_id = running.running_validation(tx, checkpoint_id)
        lease = None if validation_id is None else running.lease_of(tx, validation_id)
        return None if lease is None else Going(lease=lease, progress=_progress(lease))


def files_of_running(services: Services, *, project_id: int, validation_id: int) -> RunningFiles:
    """Return every file that is known of while a validation is open, by path.

    Raises:
        NotFoundError: There is no such validation.

    Cost: of a checkpoint of more than `MAX_FILES_MAPPED` files, nothing is read.
    """
    with services.database.read() as tx:
        row = history.find_validation(tx, project_id, validation_id)
        checkpoint = find_checkpoint(tx, project_id, row.checkpoint_id)
        is_open = row.state in (ValidationState.QUEUED, ValidationState.RUNNING)
        files = _files(tx, checkpoint, row.id) if is_open and can_be_mapped(checkpoint) else ()
        return RunningFiles(checkpoint_id=checkpoint.id, is_open=is_open, files=files)


def can_be_mapped(checkpoint: CheckpointRow) -> bool:
    """Say whether the files of a checkpoint are shown one by one while it is validated."""
    return checkpoint.num_files is not None and 0 < checkpoint.num_files <= MAX_FILES_MAPPED


def _going(tx: Transaction, checkpoint: CheckpointRow, validation_id: int) -> Going | None:
    lease = running.lease_of(tx, validation_id)
    if lease is None:
        return None
    has_few = checkpoint.num_files is not None and checkpoint.num_files <= MAX_FILES_LISTED
    return Going(
        lease=lease,
        progress=_progress(lease),
        files=_files(tx, checkpoint, validation_id) if has_few else (),
    )


def _progress(lease: Row[Any]) -> Progress:
    seconds = (lease.progress_at - lease.started_at).total_seconds()
    return Progress.of(lease.progress, seconds=seconds)


def _files(tx: Transaction, checkpoint: CheckpointRow, validation_id: int) -> tuple[FileGoing, ...]:
    lengths: dict[str, int] = {}
    for part in running.manifest_bodies(tx, checkpoint.id, limit=MAX_PARTS):
        if part.body is not None:
            lengths |= registered_lengths(part.name, part.body)
    read = running.files_read(tx, validation_id, limit=2 * MAX_FILES_MAPPED)
    return files_going(lengths, [(one.path, one.state) for one in read])

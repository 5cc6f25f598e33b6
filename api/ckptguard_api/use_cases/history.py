"""What an operator reads: checkpoints, what was found about them, and what happened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.errors import NotFoundError
from ckptguard.model.service import Hold
from ckptguard_api.database import Transaction
from ckptguard_api.domain.checkpoint_filter import CheckpointFilter
from ckptguard_api.domain.evidence_files import evidence_files
from ckptguard_api.domain.packed_manifest import unpack_manifest
from ckptguard_api.domain.paging import Page, Query, decode_cursor, encode_cursor
from ckptguard_api.domain.resume import Progress
from ckptguard_api.repositories import history
from ckptguard_api.repositories.checkpoint_list import (
    HOLD_COLUMNS,
    CheckpointRow,
    checkpoint_listing,
    find_checkpoint,
)
from ckptguard_api.repositories.history import ValidationRow
from ckptguard_api.repositories.resume_details import read_progress
from ckptguard_api.repositories.runs import get_run
from ckptguard_api.repositories.verdicts import find_verdict
from ckptguard_api.repositories.windows import read_page
from ckptguard_api.repositories.workers import list_workers
from ckptguard_api.services import Services

MAX_SHOWN: Final = 100
"""Validations and findings shown with a checkpoint; the rest is in lists of their own."""
MAX_ATTEMPTS: Final = 500
MAX_PARTS: Final = 1000
MAX_WORKERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationDetail:
    """A validation, and how it goes.

    Args:
        row: Of the validation, with its verdict.
        attempts: Last ones, oldest first, each with the name of its worker.
        progress: Of the running one.
        checks: How each ended; empty without a verdict.
        findings: The first.
        findings_total: All.
    """

    row: ValidationRow
    attempts: Sequence[Row[Any]] = ()
    progress: Progress | None = None
    checks: Sequence[Row[Any]] = ()
    findings: Sequence[Row[Any]] = ()
    findings_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDetail:
    """Everything about a checkpoint.

    Args:
        row: Of the checkpoint.
        parts: Those registered, by name.
        in_force: The validation whose verdict is in force; None: none yet, or no more
            than `row` has of it is stored.
        holds: Those set, each with the event that set it; None: nobody knows any more.
        history: Its last validations, newest first; `next` is a cursor of `list_validations`.
    """

    row: CheckpointRow
    parts: Sequence[Row[Any]]
    in_force: ValidationDetail | None
    holds: Mapping[Hold, Row[Any] | None]
    history: Page[ValidationDetail]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers, and what each does.

    Args:
        now: Time to count ages to.
        rows: As `repositories.workers.list_workers` gives them.
        progress: Of this project's running validations, by id.
    """

    now: datetime
    rows: Sequence[Row[Any]]
    progress: Mapping[int, Progress]


def list_checkpoints(
    services: Services, *, project_id: int, wanted: CheckpointFilter, cursor: str | None, limit: int
) -> Page[CheckpointRow]:
    """Return one page of the checkpoints that pass a filter, newest first.

    Raises:
        NotFoundError: There is no run of the name that the filter has.
        InvalidRequestError: The cursor belongs to another list or to other filters.
    """
    with services.database.read() as tx:
        run_id = None if wanted.run is None else get_run(tx, project_id, wanted.run).id
        return read_page(tx, checkpoint_listing(project_id, run_id, wanted), cursor=cursor, limit=limit)


def show_checkpoint(services: Services, *, project_id: int, checkpoint_id: int) -> CheckpointDetail:
    """Return everything about one checkpoint.

    Raises:
        NotFoundError: There is none; one of another project is none.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        held = history.last_held(tx, row.id)
        return CheckpointDetail(
            row=row,
            parts=history.parts_of(tx, row.id, limit=MAX_PARTS),
            in_force=_in_force(tx, row),
            holds={hold: held.get(hold) for hold, column in HOLD_COLUMNS.items() if getattr(row, column)},
            history=_validations(tx, row.id, cursor=None, limit=MAX_SHOWN),
        )


def list_validations(
    services: Services, *, project_id: int, checkpoint_id: int, cursor: str | None, limit: int
) -> Page[ValidationDetail]:
    """Return one page of the validations of a checkpoint, newest first.

    Raises:
        NotFoundError: There is no such checkpoint.
        InvalidRequestError: The cursor belongs to another list.
    """
    with services.database.read() as tx:
        find_checkpoint(tx, project_id, checkpoint_id)
        return _validations(tx, checkpoint_id, cursor=cursor, limit=limit)


def show_validation(services: Services, *, project_id: int, validation_id: int) -> ValidationDetail:
    """Return one validation with its attempts and checks.

    Raises:
        NotFoundError: There is none; one of another project is none.
    """
    with services.database.read() as tx:
        return _detail(tx, project_id, validation_id, findings=0)


def list_findings(
    services: Services, *, project_id: int, validation_id: int, cursor: str | None, limit: int
) -> Page[Row[Any]]:
    """Return one page of the findings of a validation, in the order of the report.

    Raises:
        NotFoundError: There is no such validation.
        InvalidRequestError: The cursor belongs to another list.
    """
    query = Query(name=f"findings/{validation_id}", filters={}, kinds=(int,))
    after = _number(query, cursor, start=-1)
    with services.database.read() as tx:
        history.find_validation(tx, project_id, validation_id)
        rows = history.finding_rows(tx, validation_id, after=after, limit=limit + 1)
    following = encode_cursor(query, (rows[limit - 1].number,)) if len(rows) > limit else None
    return Page(items=tuple(rows[:limit]), next=following)


def list_evidence(
    services: Services, *, project_id: int, validation_id: int, cursor: str | None, limit: int
) -> Page[dict[str, Any]]:
    """Return one page of the files that a verdict binds to.

    Raises:
        NotFoundError: There is no such validation.
        InvalidRequestError: The cursor belongs to another list.

    Cost: memory of one page; time in the number of files before its end.
    """
    query = Query(name=f"evidence/{validation_id}", filters={}, kinds=(int,))
    start = max(0, _number(query, cursor, start=0))
    with services.database.read() as tx:
        history.find_validation(tx, project_id, validation_id)
        packed = history.evidence_of(tx, validation_id)
    if packed is None:
        return Page(items=())
    files = tuple(islice(evidence_files(packed.body, start=start), limit + 1))
    following = encode_cursor(query, (start + limit,)) if len(files) > limit else None
    return Page(items=files[:limit], next=following)


def show_manifest(services: Services, *, project_id: int, checkpoint_id: int, part: str | None) -> bytes:
    """Return a manifest as it was registered, as JSON text.

    Raises:
        NotFoundError: There is no such checkpoint, or the part was registered without a manifest.
    """
    with services.database.read() as tx:
        find_checkpoint(tx, project_id, checkpoint_id)
        row = history.manifest_of(tx, checkpoint_id, part or "")
    if row is None:
        msg = "no manifest: no such part, or it was registered without one"
        raise NotFoundError(msg)
    return unpack_manifest(row.header, row.body)


def show_workers(services: Services, *, project_id: int) -> Workers:
    """Return the workers of a project and of all projects, those seen last first."""
    with services.database.read() as tx:
        rows = list_workers(tx, project_id=project_id, limit=MAX_WORKERS)
        own = [row.validation_id for row in rows if row.leased_project_id == project_id]
        return Workers(now=tx.now, rows=rows, progress=read_progress(tx, own))


def _number(query: Query, cursor: str | None, *, start: int) -> int:
    after = decode_cursor(query, cursor)
    return start if after is None else int(str(after[0]))


def _validations(
    tx: Transaction, checkpoint_id: int, *, cursor: str | None, limit: int
) -> Page[ValidationDetail]:
    page = read_page(tx, history.validation_listing(checkpoint_id), cursor=cursor, limit=limit)
    progress = read_progress(tx, [row.id for row in page.items])
    return Page(
        items=tuple(ValidationDetail(row=row, progress=progress.get(row.id)) for row in page.items),
        next=page.next,
    )


def _in_force(tx: Transaction, row: CheckpointRow) -> ValidationDetail | None:
    validation_id: int | None = row.verdict_validation_id
    if validation_id is None or find_verdict(tx, validation_id) is None:  # what was imported may have none
        return None
    return _detail(tx, row.project_id, validation_id, findings=MAX_SHOWN)


def _detail(tx: Transaction, project_id: int, validation_id: int, *, findings: int) -> ValidationDetail:
    row = history.find_validation(tx, project_id, validation_id)
    return ValidationDetail(
        row=row,
        attempts=history.attempts_of(tx, [row.id], limit=MAX_ATTEMPTS),
        progress=read_progress(tx, [row.id]).get(row.id),
        checks=history.checks_of(tx, row.id),
        findings=history.finding_rows(tx, row.id, after=-1, limit=findings) if findings else (),
        findings_total=history.last_finding_number(tx, row.id) + 1,
    )

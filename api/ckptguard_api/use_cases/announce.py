"""Expect a save: while it is written nothing else there may be resumed from, and its silence is noticed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.errors import ConflictError
from ckptguard.model.service import EventKind, Lifecycle, SupersededBy
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.registration import Announcement
from ckptguard_api.domain.same_save import place_differences, require_same
from ckptguard_api.domain.save_ids import provisional_save_id
from ckptguard_api.repositories import checkpoints
from ckptguard_api.repositories.checkpoint_list import find_checkpoint
from ckptguard_api.repositories.checkpoints import CheckpointRow
from ckptguard_api.repositories.events import record_facts
from ckptguard_api.repositories.runs import lock_run, touch_run
from ckptguard_api.services import Services
from ckptguard_api.use_cases.superseding import (
    Site,
    branch_of,
    cancel_superseded,
    lock_site,
    subject_of,
    supersede,
)

_NOT_KNOWN_YET: Final[list[str]] = []
"""Parts of a save that was only announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What became of an announcement.

    Args:
        checkpoint: As `find_checkpoint` gives it.
        is_new: It was not expected before.
        superseded: Ids of checkpoints whose bytes are about to be overwritten.
    """

    checkpoint: Row[Any]
    is_new: bool
    superseded: tuple[int, ...] = ()


def announce(services: Services, request: Announcement, *, project_id: int, actor: Actor) -> Announced:
    """Expect a save, or go on expecting it.

    Everything at the location, above or below it is superseded: its bytes are about to be overwritten. Sent
    again it keeps the announcement alive. One that names the save id of an earlier answer does no more than
    that: where the save was registered in between, nothing changes.

    Raises:
        LocationRefusedError: The location is in no store, or unsafe.
        InvalidRequestError: The branch does not exist.
        ConflictError: The save id stands for another place, or for a save whose bytes are gone.
    """
    with services.database.write() as tx:
        site = lock_site(tx, request, project_id=project_id, own_folders=services.own_folders, actor=actor)
        row = _find(tx, site, request)
        if row is not None:
            require_same(what=_named(site, row), differences=list(place_differences(row, site.location.url)))
            if row.registered_at is not None:
                return _complete(tx, site, row)
            if row.lifecycle == Lifecycle.ANNOUNCED.value:
                return _kept_alive(tx, row, request)
            _require_alive(site, row, request)
            if _is_sign_of_life(site, request) and row.superseded_by == SupersededBy.ROLLED_BACK.value:
                return _answer(tx, row, is_new=False)
        return _expected(tx, site, request, row, actor=actor)


def mark_incomplete(tx: Transaction, limit: int) -> int:
    """Give up announcements of which nothing was heard in time; return how many.

    Called again and again: what another process marked in between is left alone. A registration that comes
    later still registers the save.

    Args:
        tx: Where.
        limit: Announcements of one call, at most.
    """
    overdue = checkpoints.overdue_announcements(tx, limit=limit)
    for run_id in sorted({row.run_id for row in overdue}):
        lock_run(tx, run_id)
    marked = checkpoints.mark_incomplete_rows(tx, [row.id for row in overdue]) if overdue else []
    for run_id in {row.run_id for row in marked}:
        touch_run(tx, run_id)
    about = tuple(subject_of(row) for row in marked)
    record_facts(tx, [Fact(kind=EventKind.CHECKPOINT_INCOMPLETE, about=about)], actor=SERVICE)
    return len(marked)


def _find(tx: Transaction, site: Site, request: Announcement) -> CheckpointRow | None:
    provisional = provisional_save_id(site.location.url)
    key = {"run_id": site.run.id, "step": request.step}
    row = checkpoints.find_by_key(tx, save_id=request.save_id or provisional, **key)
    if row is None and request.save_id == provisional:
        # The announcement that is to be kept alive got its real save id: it was registered meanwhile.
        return checkpoints.find_complete_at(tx, location=site.location.url, **key)
    return row


def _named(site: Site, row: CheckpointRow) -> str:
    return f"run {site.run.name!r}, step {row.step}, save {row.save_id!r}"


def _complete(tx: Transaction, site: Site, row: CheckpointRow) -> Announced:
    if row.lifecycle == Lifecycle.DELETED.value or row.superseded_by == SupersededBy.REWRITTEN.value:
        msg = f"{_named(site, row)} was registered, and is {row.lifecycle}; a new save needs another save id"
        raise ConflictError(msg)
    return _answer(tx, row, is_new=False)


def _kept_alive(tx: Transaction, row: CheckpointRow, request: Announcement) -> Announced:
    until = _until(tx, request)
    # A kept answer knows when the announcement ends. A later end leaves it right, unless it ended already.
    if until < row.keep_alive_until or row.keep_alive_until <= tx.now:
        touch_run(tx, row.run_id)
    changed = checkpoints.change_checkpoint(tx, row.id, {"keep_alive_until": until})
    return _answer(tx, changed, is_new=False)


def _is_sign_of_life(site: Site, request: Announcement) -> bool:
    """Say whether a job only says that it is still at the save that it announced before."""
    return request.save_id == provisional_save_id(site.location.url)


def _require_alive(site: Site, row: CheckpointRow, request: Announcement) -> None:
    """Let no late sign of life take the place back from a save that was made there since."""
    is_rewritten = row.superseded_by == SupersededBy.REWRITTEN.value
    if is_rewritten and (_is_sign_of_life(site, request) or row.expected_parts):
        msg = f"{_named(site, row)} is superseded: another save was announced or made at its location"
        raise ConflictError(msg)


def _expected(
    tx: Transaction, site: Site, request: Announcement, before: CheckpointRow | None, *, actor: Actor
) -> Announced:
    announced = before if _is_sign_of_life(site, request) else None
    branch, is_on_the_way = branch_of(tx, site.run, request, announced)
    values: dict[str, Any] = {
        "branch": branch,
        "lifecycle": (Lifecycle.ANNOUNCED if is_on_the_way else Lifecycle.SUPERSEDED).value,
        "superseded_by": None if is_on_the_way else SupersededBy.ROLLED_BACK.value,
        "gone_at": None if is_on_the_way else tx.now,
        "keep_alive_until": _until(tx, request) if is_on_the_way else None,
        "created_at": tx.now,
    }
    if before is None:
        row = checkpoints.add_checkpoint(tx, {**_key_values(site, request), **values})
    else:
        row = checkpoints.change_checkpoint(tx, before.id, values)
    gone, superseded = supersede(tx, site, row)
    touch_run(tx, site.run.id)
    record_facts(tx, [*site.facts, superseded, _announced_fact(row)], actor=actor)
    cancel_superseded(tx, gone, actor=actor)
    return _answer(tx, row, is_new=True, superseded=gone)


def _key_values(site: Site, request: Announcement) -> dict[str, Any]:
    return {
        "project_id": site.run.project_id,
        "run_id": site.run.id,
        "step": request.step,
        "save_id": request.save_id or provisional_save_id(site.location.url),
        "store_id": site.location.store_id,
        "path": site.location.path,
        "location": site.location.url,
        "expected_parts": _NOT_KNOWN_YET,
    }


def _announced_fact(row: CheckpointRow) -> Fact:
    data = {"step": row.step, "branch": row.branch, "save_id": row.save_id, "location": row.location}
    return Fact(kind=EventKind.CHECKPOINT_ANNOUNCED, about=(subject_of(row),), data=data)


def _until(tx: Transaction, request: Announcement) -> datetime:
    return tx.now + timedelta(seconds=request.keep_alive_s)


def _answer(
    tx: Transaction, row: CheckpointRow, *, is_new: bool, superseded: Sequence[CheckpointRow] = ()
) -> Announced:
    return Announced(
        checkpoint=find_checkpoint(tx, row.project_id, row.id),
        is_new=is_new,
        superseded=tuple(each.id for each in superseded),
    )

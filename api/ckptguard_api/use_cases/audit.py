"""The audit as a person looks through it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.errors import ForbiddenError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.paging import Page
from ckptguard_api.repositories.event_list import event_listing
from ckptguard_api.repositories.runs import get_run
from ckptguard_api.repositories.windows import Listing, read_page
from ckptguard_api.services import Services

_ROWS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which events.

    Args:
        run: Name of the run that they are about; None: any, or none.
        checkpoint_id: That they are about; None: any, or none.
        kind: None: any.
        actor: A part of the name of who did it; None: anybody.
        is_of_service: What belongs to no project: tokens and workers of all projects. Else the project's.
    """

    run: str | None = None
    checkpoint_id: int | None = None
    kind: EventKind | None = None
    actor: str | None = None
    is_of_service: bool = False


def list_audit(
    services: Services, *, project_id: int, wanted: AuditFilter, by: Actor, cursor: str | None, limit: int
) -> Page[Row[Any]]:
    """Return one page of the audit, newest first; each row with `run` and `step`.

    Raises:
        NotFoundError: There is no such run.
        ForbiddenError: What belongs to no project is for those who may see all.
        InvalidRequestError: The cursor belongs to another list or to other filters.
    """
    with services.database.read() as tx:
        listing = _listing(tx, project_id, wanted, by=by)
        return read_page(tx, listing, cursor=cursor, limit=limit)


def all_audit(
    services: Services, *, project_id: int, wanted: AuditFilter, by: Actor, limit: int
) -> Iterator[Row[Any]]:
    """Yield the newest events, `limit` at most, page by page: no transaction stays open between them.

    Raises:
        NotFoundError, ForbiddenError: As `list_audit`.
    """
    cursor: str | None = None
    while limit > 0:
        page = list_audit(
            services,
            project_id=project_id,
            wanted=wanted,
            by=by,
            cursor=cursor,
            limit=min(limit, _ROWS_AT_ONCE),
        )
        yield from page.items
        limit, cursor = limit - len(page.items), page.next
        if cursor is None:
            return


def _listing(tx: Transaction, project_id: int, wanted: AuditFilter, *, by: Actor) -> Listing:
    if wanted.is_of_service and by.project_id is not None:
        msg = "this token is for one project"
        raise ForbiddenError(msg)
    run_id = None if wanted.run is None else get_run(tx, project_id, wanted.run).id
    return event_listing(
        None if wanted.is_of_service else project_id,
        run_id=run_id,
        checkpoint_id=wanted.checkpoint_id,
        kind=wanted.kind,
        actor=wanted.actor,
    )

"""The audit: everything that happened, who did it, and why."""

import json
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from sqlalchemy import Row
from starlette.responses import Response

from ckptguard.errors import NotFoundError
from ckptguard.model.manifest_laws import MAX_LABEL_CHARS
from ckptguard.model.service import EventKind
from ckptguard_api.domain.paging import Page
from ckptguard_api.pages.asked import address, choice, whole_number
from ckptguard_api.pages.csv_answer import MAX_ROWS, csv_answer
from ckptguard_api.pages.event_words import sentence_of
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.routes.answers import Cursor
from ckptguard_api.use_cases.audit import AuditFilter, all_audit, list_audit

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

_SHOWN: Final = 50
_MAX_ID: Final = 2**63 - 1
_OF_SERVICE: Final = "service"
_COLUMNS: Final = ("id", "at", "kind", "what", "actor", "run", "step", "checkpoint", "validation", "data")

Text = Annotated[str, Query(max_length=MAX_LABEL_CHARS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The filters of an address, as they stand there."""

    kind: str = ""
    run: str = ""
    checkpoint: str = ""
    actor: str = ""
    of: str = ""

    def address(self, path: str, **more: object) -> str:
        """Return the path with these filters."""
        own = {name: getattr(self, name) for name in ("kind", "run", "checkpoint", "actor", "of")}
        return address(path, own | more)

    def wanted(self) -> AuditFilter:
        """Return what is asked for.

        Raises:
            InvalidRequestError: No such kind, or no number.
        """
        return AuditFilter(
            run=self.run.strip() or None,
            checkpoint_id=whole_number(self.checkpoint, field="checkpoint", low=1, high=_MAX_ID),
            kind=choice(EventKind, self.kind, field="kind"),
            actor=self.actor.strip() or None,
            is_of_service=self.of == _OF_SERVICE,
        )


@router.get("/events")
def events_route(
    visit: VisitDep,
    *,
    kind: Text = "",
    run: Text = "",
    checkpoint: Text = "",
    actor: Text = "",
    of: Text = "",
    cursor: Cursor = None,
) -> Response:
    """List the audit, newest first."""
    asked = Asked(kind=kind, run=run, checkpoint=checkpoint, actor=actor, of=of)
    wanted, here = asked.wanted(), visit.path("events")
    page, is_known = _page(visit, wanted, cursor)
    return visit.page(
        "events_part.html" if visit.is_fragment else "events.html",
        section="events",
        events=page.items,
        sentence_of=sentence_of,
        asked=asked,
        asked_by=lambda actor: replace(asked, actor=actor).address(here),
        is_filtered=wanted != AuditFilter(),
        is_run_known=is_known,
        kinds=_kinds_by_subject(),
        next=asked.address(here, cursor=page.next) if page.next else None,
        first=asked.address(here) if cursor else None,
        csv=asked.address(visit.path("events.csv")),
        max_rows=MAX_ROWS,
    )


@router.get("/events.csv")
def events_csv_route(
    visit: VisitDep,
    *,
    kind: Text = "",
    run: Text = "",
    checkpoint: Text = "",
    actor: Text = "",
    of: Text = "",
) -> Response:
    """Give the newest events that pass the filters as a file."""
    asked = Asked(kind=kind, run=run, checkpoint=checkpoint, actor=actor, of=of)
    found = all_audit(
        visit.services, project_id=visit.project_id, wanted=asked.wanted(), by=visit.actor, limit=MAX_ROWS
    )
    rows = (
        (
            one.id,
            one.at.isoformat(),
            one.kind,
            sentence_of(one.kind, one.data),
            one.actor,
            one.run,
            one.step,
            one.checkpoint_id,
            one.validation_id,
            json.dumps(one.data, sort_keys=True),
        )
        for one in found
    )
    return csv_answer("events.csv", _COLUMNS, rows)


def _page(visit: Visit, wanted: AuditFilter, cursor: str | None) -> tuple[Page[Row[Any]], bool]:
    try:
        page = list_audit(
            visit.services,
            project_id=visit.project_id,
            wanted=wanted,
            by=visit.actor,
            cursor=cursor,
            limit=_SHOWN,
        )
    except NotFoundError:
        return Page(items=()), False
    return page, True


def _kinds_by_subject() -> dict[str, list[EventKind]]:
    found: dict[str, list[EventKind]] = {}
    for kind in EventKind:
        found.setdefault(kind.partition(".")[0], []).append(kind)
    return found

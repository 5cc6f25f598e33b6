"""The stores of a project: where, how, and how each does."""

import json
import shlex
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from ckptguard_api.doorkeeper import PROJECT_HEADER
from ckptguard_api.pages.asked import address
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.use_cases.access import DEFAULT_PROJECT
from ckptguard_api.use_cases.store_health import LAST_VERDICTS, MAX_OVERDUE, show_stores

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

_SHOWN: Final = 20

After = Annotated[str, Query(max_length=64)]


@router.get("/stores")
def stores_route(visit: VisitDep, after: After = "") -> Response:
    """List the stores that are allowed now, by name."""
    stores = show_stores(visit.services, project_id=visit.project_id, after_name=after or None, limit=_SHOWN)
    here = visit.path("stores")
    return visit.page(
        "stores.html",
        section="stores",
        stores=stores.items,
        now=stores.now,
        last_verdicts=LAST_VERDICTS,
        max_overdue=MAX_OVERDUE,
        next=address(here, {"after": stores.next}) if stores.next else None,
        first=here if after else None,
        allow=_allow_command(visit),
    )


def _allow_command(visit: Visit) -> str:
    """Return the command that allows a store in this project."""
    project = (
        "" if visit.project == DEFAULT_PROJECT else f" -H {shlex.quote(f'{PROJECT_HEADER}: {visit.project}')}"
    )
    store = shlex.quote(json.dumps({"name": "demo", "url": "file:///checkpoints"}))
    url = shlex.quote(f"{str(visit.request.base_url).rstrip('/')}/v1/stores")
    return f'curl -H "Authorization: Bearer $CKPTGUARD_TOKEN"{project} \\\n  --json {store} {url}'

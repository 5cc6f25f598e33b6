"""`/v1/stores`: the roots that a project allows."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from ckptguard.model.policy import StoreTimes
from ckptguard.storage.allowed_urls import MAX_URL_BYTES
from ckptguard_api.domain.paging import Query, decode_cursor, encode_cursor
from ckptguard_api.domain.store_rules import STORE_NAME_PATTERN, StoreSettings
from ckptguard_api.repositories.stores import StoreRow
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer
from ckptguard_api.routes.dependencies import AdminDep, ReaderDep, ServicesDep
from ckptguard_api.use_cases.stores import create_store, remove_store, stores_of

router = APIRouter(prefix="/v1/stores", tags=["stores"])

_LIST: Final = Query(name="stores", filters={}, kinds=(str,))

Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class StoreRequest(BaseModel):
    """A root that is to be allowed; `url` is a URL, or an absolute path."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=64, pattern=f"^{STORE_NAME_PATTERN}$")]
    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_BYTES)]
    times: StoreTimes = StoreTimes.ORIGINAL
    settle_s: Seconds = 30.0
    mtime_tolerance_s: Seconds = 5.0
    scrub_every_s: Seconds | None = None


class StoreAnswer(BaseModel):
    """A root that is allowed; `bytes_per_s` is measured."""

    name: str
    url: str
    times: StoreTimes
    settle_s: float
    mtime_tolerance_s: float
    scrub_every_s: float | None
    bytes_per_s: float | None
    created_at: datetime


@router.post(
    "", status_code=201, responses={200: {"description": "It was there; its settings are these now."}}
)
def create_store_route(
    body: StoreRequest, caller: AdminDep, services: ServicesDep, response: Response
) -> StoreAnswer:
    """Allow a root; of one that is allowed, set the settings."""
    settings = StoreSettings(
        times=body.times,
        settle_s=body.settle_s,
        mtime_tolerance_s=body.mtime_tolerance_s,
        scrub_every_s=body.scrub_every_s,
    )
    row, is_new = create_store(
        services, body.name, body.url, settings, project_id=caller.project_id, actor=caller.actor
    )
    response.status_code = 201 if is_new else 200
    return _answer(row)


@router.get("")
def list_stores_route(
    caller: ReaderDep, services: ServicesDep, limit: Limit = FIRST_LIMIT, cursor: Cursor = None
) -> PageAnswer[StoreAnswer]:
    """List the roots that are allowed, by name."""
    after = decode_cursor(_LIST, cursor)
    after_name = None if after is None else str(after[0])
    rows = stores_of(services, project_id=caller.project_id, after_name=after_name, limit=limit + 1)
    page = rows[:limit]
    following = encode_cursor(_LIST, (page[-1].name,)) if len(rows) > limit else None
    return PageAnswer(items=[_answer(row) for row in page], next=following)


@router.delete("/{name}", status_code=204)
def remove_store_route(
    name: Annotated[str, Path(max_length=64)], caller: AdminDep, services: ServicesDep
) -> None:
    """Allow a root no longer; checkpoints in it stay known."""
    remove_store(services, name, project_id=caller.project_id, actor=caller.actor)


def _answer(row: StoreRow) -> StoreAnswer:
    return StoreAnswer(**{name: getattr(row, name) for name in StoreAnswer.model_fields})

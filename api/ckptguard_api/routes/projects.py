"""`/v1/projects`: make, list."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ckptguard_api.domain.paging import Query, decode_cursor, encode_cursor
from ckptguard_api.repositories.projects import ProjectRow
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer
from ckptguard_api.routes.dependencies import AdminDep, ReaderDep, ServicesDep
from ckptguard_api.use_cases.projects import create_project, projects_seen_by

router = APIRouter(prefix="/v1/projects", tags=["projects"])

_LIST = Query(name="projects", filters={}, kinds=(int,))

ProjectName = Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
GlobalName = Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)+$")]


class ProjectRequest(BaseModel):
    """What a project is to be."""

    model_config = ConfigDict(extra="forbid")

    name: ProjectName
    allowed_globals: Annotated[list[GlobalName], Field(max_length=1000)] = []


class ProjectAnswer(BaseModel):
    """A project."""

    id: int
    name: str
    allowed_globals: list[str]
    created_at: datetime


@router.post("", status_code=201, responses={200: {"description": "It was there, and is the same."}})
def create_project_route(
    body: ProjectRequest, caller: AdminDep, services: ServicesDep, response: Response
) -> ProjectAnswer:
    """Make a project; only a token of all projects may."""
    row, is_new = create_project(services, body.name, body.allowed_globals, by=caller.actor)
    response.status_code = 201 if is_new else 200
    return _answer(row)


@router.get("")
def list_projects_route(
    caller: ReaderDep, services: ServicesDep, limit: Limit = FIRST_LIMIT, cursor: Cursor = None
) -> PageAnswer[ProjectAnswer]:
    """List projects, oldest first: the caller's own, or all."""
    after = decode_cursor(_LIST, cursor)
    after_id = None if after is None else int(str(after[0]))
    rows = projects_seen_by(services, caller.actor, after_id=after_id, limit=limit + 1)
    page = rows[:limit]
    following = encode_cursor(_LIST, (page[-1].id,)) if len(rows) > limit else None
    return PageAnswer(items=[_answer(row) for row in page], next=following)


def _answer(row: ProjectRow) -> ProjectAnswer:
    return ProjectAnswer(
        id=row.id, name=row.name, allowed_globals=row.allowed_globals, created_at=row.created_at
    )

"""`/v1/tokens`: make, list, revoke."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ckptguard.model.service import Scope
from ckptguard_api.domain.paging import Query, decode_cursor, encode_cursor
from ckptguard_api.repositories.tokens import TokenRow
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer, RowId
from ckptguard_api.routes.dependencies import AdminDep, ServicesDep
from ckptguard_api.use_cases.tokens import TokenWish, create_token, revoke_token, tokens_seen_by

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

_MAX_LIFE_S = 100 * 365 * 86400.0
_LIST = Query(name="tokens", filters={}, kinds=(int,))

Name = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[\w.@/ -]+$")]


class TokenRequest(BaseModel):
    """What a token is to be."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    project: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    expires_in_s: Annotated[float, Field(gt=0, le=_MAX_LIFE_S)] | None = None


class TokenAnswer(BaseModel):
    """A token, without its text."""

    id: int
    name: str
    hint: str
    scopes: list[Scope]
    project: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenAnswer(TokenAnswer):
    """A token, and its text for the only time."""

    token: str


@router.post("", status_code=201)
def create_token_route(body: TokenRequest, caller: AdminDep, services: ServicesDep) -> NewTokenAnswer:
    """Make a token; the answer is the only place that ever shows it."""
    wish = TokenWish(
        name=body.name,
        scopes=frozenset(body.scopes),
        project=body.project,
        expires_in_s=body.expires_in_s,
    )
    made = create_token(services, wish, by=caller.actor)
    return NewTokenAnswer(**_answer(made.row).model_dump(), token=made.token.text)


@router.get("")
def list_tokens_route(
    caller: AdminDep, services: ServicesDep, limit: Limit = FIRST_LIMIT, cursor: Cursor = None
) -> PageAnswer[TokenAnswer]:
    """List tokens, newest first: of the caller's project, or all."""
    after = decode_cursor(_LIST, cursor)
    before_id = None if after is None else int(str(after[0]))
    rows = tokens_seen_by(services, caller.actor, before_id=before_id, limit=limit + 1)
    page = rows[:limit]
    following = encode_cursor(_LIST, (page[-1].id,)) if len(rows) > limit else None
    return PageAnswer(items=[_answer(row) for row in page], next=following)


@router.delete("/{token_id}", status_code=204)
def revoke_token_route(token_id: RowId, caller: AdminDep, services: ServicesDep) -> None:
    """Revoke a token, at once and in every process; again: nothing more happens."""
    revoke_token(services, token_id, by=caller.actor, own_id=caller.token_id)


def _answer(row: TokenRow) -> TokenAnswer:
    return TokenAnswer.model_validate(row, from_attributes=True)

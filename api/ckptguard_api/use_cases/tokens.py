"""Make, list and revoke tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ckptguard.errors import ConflictError, NotFoundError
from ckptguard.model.service import EventKind, Scope
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.subject import Subject
from ckptguard_api.domain.tokens import NewToken, new_token
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.projects import find_project
from ckptguard_api.repositories.tokens import (
    TokenRow,
    add_token,
    end_token,
    get_token,
    has_other_admin,
    list_tokens,
    lock_tokens,
)
from ckptguard_api.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWish:
    """What a token is to be.

    Args:
        name: For people and the audit.
        scopes: What it may do; at least one.
        project: The only project it may touch; None: that of its maker, who may have all.
        expires_in_s: Seconds until it ends by itself; None: never.
    """

    name: str
    scopes: frozenset[Scope]
    project: str | None = None
    expires_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeToken:
    """A token, and its text for the only time."""

    row: TokenRow
    token: NewToken


def create_token(services: Services, wish: TokenWish, *, by: Actor) -> MadeToken:
    """Make a token; its text is in the answer and nowhere else.

    Raises:
        NotFoundError: The project does not exist, or is not the maker's.
    """
    with services.database.write() as tx:
        return add_new_token(tx, wish, by=by)


def add_new_token(tx: Transaction, wish: TokenWish, *, by: Actor) -> MadeToken:
    """Make a token inside a transaction of the caller; see `create_token`."""
    token = new_token()
    lock_tokens(tx)
    project_id = _project_of_new(tx, wish.project, by=by)
    expires_at = None if wish.expires_in_s is None else tx.now + timedelta(seconds=wish.expires_in_s)
    values = {
        "project_id": project_id,
        "name": wish.name,
        "hint": token.hint,
        "hash": token.hash,
        "scopes": sorted(wish.scopes),
        "created_at": tx.now,
        "expires_at": expires_at,
    }
    row = get_token(tx, add_token(tx, values), project_id=project_id)
    _tell(tx, EventKind.TOKEN_CREATED, row, by=by)
    return MadeToken(row=row, token=token)


def revoke_token(services: Services, token_id: int, *, by: Actor, own_id: int | None) -> None:
    """End a token at once, in every process; an ended one stays as it is.

    Args:
        services: Of this process.
        token_id: The token to end.
        by: Who asks.
        own_id: The token that asks; None: the service itself.

    Raises:
        NotFoundError: There is none, or it is of a project that is not the caller's.
        ConflictError: It is the last admin token of all projects, revoking itself: nobody could make another.
    """
    with services.database.write() as tx:
        lock_tokens(tx)
        row = get_token(tx, token_id, project_id=by.project_id)
        if row.revoked_at is not None:
            return
        if token_id == own_id and _is_last_admin(tx, row):
            msg = "the last admin token of all projects cannot revoke itself; create another first"
            raise ConflictError(msg)
        end_token(tx, token_id, revoked_at=tx.now)
        _tell(tx, EventKind.TOKEN_REVOKED, row, by=by)


def tokens_seen_by(
    services: Services, actor: Actor, *, before_id: int | None, limit: int
) -> Sequence[TokenRow]:
    """Return the tokens of the actor's project, or all of them, newest first."""
    with services.database.read() as tx:
        return list_tokens(tx, project_id=actor.project_id, before_id=before_id, limit=limit)


def _project_of_new(tx: Transaction, name: str | None, *, by: Actor) -> int | None:
    if name is None:
        return by.project_id
    row = find_project(tx, name)
    if row is None or by.project_id not in (None, row.id):
        msg = f"no project {name!r}"
        raise NotFoundError(msg)
    return int(row.id)


def _is_last_admin(tx: Transaction, row: TokenRow) -> bool:
    is_admin = row.project_id is None and Scope.ADMIN in row.scopes
    return is_admin and not has_other_admin(tx, row.id, now=tx.now)


def _tell(tx: Transaction, kind: EventKind, row: TokenRow, *, by: Actor) -> None:
    data = {"token_id": row.id, "name": row.name, "hint": row.hint, "scopes": row.scopes}
    record(tx, kind, actor=by, about=Subject(project_id=row.project_id), data=data)

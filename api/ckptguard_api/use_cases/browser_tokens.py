"""Sign a browser in and out: it holds a short token of its own, never the one that was typed."""

from datetime import datetime, timedelta
from typing import Final

from ckptguard.errors import ForbiddenError, UnauthorizedError
from ckptguard.model.service import EventKind, Scope
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.subject import Subject
from ckptguard_api.domain.tokens import actor_of_token, hash_token, is_token_shaped, new_token
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.tokens import (
    TokenRow,
    add_token,
    end_token,
    find_token_by_hash,
    get_token,
    lock_tokens,
)
from ckptguard_api.services import Services
from ckptguard_api.use_cases.tokens import MadeToken

BROWSER_S: Final = 8 * 3600.0
"""A browser is signed out after a working day."""

_REFUSED: Final = "no token that is known and good"


def sign_in(services: Services, text: str, *, is_read_only: bool) -> MadeToken:
    """Make the token of one browser.

    Args:
        services: Of this process.
        text: The token that was typed.
        is_read_only: Whether the browser may only look.

    Returns:
        A token that can do no more than the typed one, ends with it, and ends after `BROWSER_S`.

    Raises:
        UnauthorizedError: The typed token is unknown, expired, revoked, or a browser's itself.
        ForbiddenError: It may not read.
    """
    with services.database.write() as tx:
        lock_tokens(tx)
        parent = _good_token(tx, text)
        scopes = _scopes_of(parent, is_read_only=is_read_only)
        token = new_token()
        values = {
            "project_id": parent.project_id,
            "parent_id": parent.id,
            "name": parent.name,
            "hint": token.hint,
            "hash": token.hash,
            "scopes": sorted(scopes),
            "created_at": tx.now,
            "expires_at": _end_of(parent, tx.now),
        }
        row = get_token(tx, add_token(tx, values), project_id=parent.project_id)
        _tell(tx, EventKind.TOKEN_CREATED, row)
        return MadeToken(row=row, token=token)


def sign_out(services: Services, token_id: int) -> None:
    """End the token of one browser; any other token stays as it is."""
    with services.database.write() as tx:
        lock_tokens(tx)
        row = get_token(tx, token_id, project_id=None)
        if row.parent_id is None or row.revoked_at is not None:
            return
        end_token(tx, token_id, revoked_at=tx.now)
        _tell(tx, EventKind.TOKEN_REVOKED, row)


def _good_token(tx: Transaction, text: str) -> TokenRow:
    row = find_token_by_hash(tx, hash_token(text)) if is_token_shaped(text) else None
    if row is None or row.parent_id is not None or row.revoked_at is not None:
        raise UnauthorizedError(_REFUSED)
    if row.expires_at is not None and row.expires_at <= tx.now:
        raise UnauthorizedError(_REFUSED)
    return row


def _scopes_of(parent: TokenRow, *, is_read_only: bool) -> frozenset[Scope]:
    scopes = frozenset(Scope(scope) for scope in parent.scopes)
    if not scopes & {Scope.READ, Scope.ADMIN}:
        msg = "this token may not read; sign in with one of scope read or admin"
        raise ForbiddenError(msg)
    return frozenset({Scope.READ}) if is_read_only else scopes & {Scope.READ, Scope.ADMIN}


def _end_of(parent: TokenRow, now: datetime) -> datetime:
    end = now + timedelta(seconds=BROWSER_S)
    return end if parent.expires_at is None else min(end, parent.expires_at)


def _tell(tx: Transaction, kind: EventKind, row: TokenRow) -> None:
    data = {"token_id": row.id, "name": row.name, "hint": row.hint, "scopes": row.scopes, "browser": True}
    record(tx, kind, actor=_actor(row), about=Subject(project_id=row.project_id), data=data)


def _actor(row: TokenRow) -> Actor:
    scopes = frozenset(Scope(scope) for scope in row.scopes)
    return actor_of_token(name=row.name, hint=row.hint, project_id=row.project_id, scopes=scopes)

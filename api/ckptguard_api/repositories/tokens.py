"""Tokens by hash, and the revision that caches of them are held against."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, func, insert, or_, select, update

from ckptguard.errors import NotFoundError
from ckptguard.model.service import Scope
from ckptguard_api.database import Transaction
from ckptguard_api.tables import projects, revisions, tokens

TokenRow = Row[Any]
"""A row of `tokens`, with `project`: the name of its project, or None."""

REVISION: Final = "tokens"
"""The row of `revisions` that every write to `tokens` raises."""

_JOINED: Final = tokens.outerjoin(projects, projects.c.id == tokens.c.project_id)
_COLUMNS: Final = (*tokens.c, projects.c.name.label("project"))


def token_revision(tx: Transaction) -> int:
    """Return the revision of all tokens; 0 before the first write."""
    statement = select(revisions.c.value).where(revisions.c.name == REVISION)
    return int(tx.execute(statement).scalar_one_or_none() or 0)


def lock_tokens(tx: Transaction) -> None:
    """Raise the revision, and let no other transaction write tokens until the commit.

    Guarantees: what is read of tokens afterwards stays so: the last admin is counted by one at a time.
    """
    raised = update(revisions).where(revisions.c.name == REVISION).values(value=revisions.c.value + 1)
    if tx.execute(raised).rowcount == 0:
        tx.execute(insert(revisions).values(name=REVISION, value=1))


def find_token_by_hash(tx: Transaction, token_hash: str) -> TokenRow | None:
    """Return the token with this hash, good or not; None: there is none."""
    statement = select(*_COLUMNS).select_from(_JOINED).where(tokens.c.hash == token_hash)
    return tx.execute(statement).one_or_none()


def get_token(tx: Transaction, token_id: int, *, project_id: int | None) -> TokenRow:
    """Return a token by id.

    Args:
        tx: Where.
        token_id: Its row.
        project_id: The only project whose tokens may be seen; None: all.

    Raises:
        NotFoundError: There is none, or it is not that project's.
    """
    statement = select(*_COLUMNS).select_from(_JOINED).where(tokens.c.id == token_id)
    row = tx.execute(statement).one_or_none()
    if row is None or project_id not in (None, row.project_id):
        msg = "no such token"
        raise NotFoundError(msg)
    return row


def list_tokens(
    tx: Transaction, *, project_id: int | None, before_id: int | None, limit: int
) -> Sequence[TokenRow]:
    """Return tokens that people and programs hold, newest first, those below `before_id`; no browser's."""
    statement = select(*_COLUMNS).select_from(_JOINED).where(tokens.c.parent_id.is_(None))
    statement = statement.order_by(tokens.c.id.desc()).limit(limit)
    if project_id is not None:
        statement = statement.where(tokens.c.project_id == project_id)
    if before_id is not None:
        statement = statement.where(tokens.c.id < before_id)
    return tx.execute(statement).all()


def add_token(tx: Transaction, values: dict[str, Any]) -> int:
    """Store a token and return its id; the caller holds `lock_tokens`."""
    row_id: int = tx.execute(insert(tokens).values(values).returning(tokens.c.id)).scalar_one()
    return row_id


def end_token(tx: Transaction, token_id: int, *, revoked_at: datetime) -> None:
    """Mark a token, and those of its browsers, as revoked; the caller holds `lock_tokens`."""
    is_ended = or_(tokens.c.id == token_id, tokens.c.parent_id == token_id)
    tx.execute(update(tokens).where(is_ended, tokens.c.revoked_at.is_(None)).values(revoked_at=revoked_at))


def count_tokens(tx: Transaction) -> int:
    """Return how many there are, good or not."""
    return int(tx.execute(select(func.count()).select_from(tokens)).scalar_one())


def has_other_admin(tx: Transaction, token_id: int, *, now: datetime) -> bool:
    """Say whether a good token of all projects with scope `admin` exists besides this one; no browser's."""
    is_own = tokens.c.parent_id.is_(None)
    is_good = (
        is_own & tokens.c.revoked_at.is_(None) & or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    )
    statement = select(tokens.c.scopes).where(is_good, tokens.c.project_id.is_(None), tokens.c.id != token_id)
    return any(Scope.ADMIN in scopes for scopes in tx.execute(statement).scalars())


def live_tokens_named(tx: Transaction, name: str) -> Sequence[TokenRow]:
    """Return the tokens of this name that are not revoked."""
    statement = select(tokens).where(tokens.c.name == name, tokens.c.revoked_at.is_(None))
    return tx.execute(statement.order_by(tokens.c.id)).all()

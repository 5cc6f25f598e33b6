"""Stores: the roots that a project allows. A removed one keeps its row: checkpoints refer to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from ckptguard_api.database import Transaction
from ckptguard_api.domain.locations import Root
from ckptguard_api.tables import stores

StoreRow = Row[Any]
"""A row of `stores`, all columns."""


def find_store(tx: Transaction, project_id: int, name: str) -> StoreRow | None:
    """Return the store of this name, a removed one too, or None."""
    statement = select(stores).where(stores.c.project_id == project_id, stores.c.name == name)
    return tx.execute(statement).one_or_none()


def list_stores(
    tx: Transaction, project_id: int, *, after_name: str | None = None, limit: int | None = None
) -> Sequence[StoreRow]:
    """Return the stores that are allowed now, by name."""
    statement = select(stores).where(stores.c.project_id == project_id, stores.c.removed_at.is_(None))
    if after_name is not None:
        statement = statement.where(stores.c.name > after_name)
    return tx.execute(statement.order_by(stores.c.name).limit(limit)).all()


def is_any_allowed(tx: Transaction) -> bool:
    """Say whether any project allows a store now."""
    return tx.execute(select(stores.c.id).where(stores.c.removed_at.is_(None)).limit(1)).first() is not None


def roots_of(tx: Transaction, project_id: int) -> tuple[Root, ...]:
    """Return the roots that are allowed now, by name."""
    rows = list_stores(tx, project_id)
    return tuple(Root(store_id=row.id, name=row.name, url=row.url) for row in rows)


def is_elsewhere(tx: Transaction, name: str, *, other_than: str) -> bool:
    """Say whether any project has, or had, a store of this name at another place."""
    statement = select(stores.c.id).where(stores.c.name == name, stores.c.url != other_than)
    return tx.execute(statement.limit(1)).first() is not None


def count_stores(tx: Transaction, project_id: int) -> int:
    """Count all stores that a project has or had."""
    statement = select(func.count()).select_from(stores).where(stores.c.project_id == project_id)
    number: int = tx.execute(statement).scalar_one()
    return number


def add_store(
    tx: Transaction, *, project_id: int, name: str, url: str, settings: Mapping[str, Any]
) -> StoreRow:
    """Add a store."""
    values = {"project_id": project_id, "name": name, "url": url, "created_at": tx.now, **settings}
    return tx.execute(insert(stores).values(values).returning(stores)).one()


def change_store(tx: Transaction, store_id: int, values: Mapping[str, Any]) -> StoreRow:
    """Change settings of a store, or whether it is removed."""
    statement = update(stores).where(stores.c.id == store_id).values(dict(values))
    return tx.execute(statement.returning(stores)).one()

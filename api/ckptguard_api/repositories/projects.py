"""Projects by name."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, insert, select

from ckptguard_api.database import Transaction
from ckptguard_api.tables import projects

ProjectRow = Row[Any]
"""A row of `projects`, all columns."""


def find_project(tx: Transaction, name: str) -> ProjectRow | None:
    """Return the project, or None."""
    return tx.execute(select(projects).where(projects.c.name == name)).one_or_none()


def list_projects(
    tx: Transaction, *, project_id: int | None, after_id: int | None, limit: int
) -> Sequence[ProjectRow]:
    """Return projects, oldest first, those above `after_id`.

    Args:
        tx: Where.
        project_id: The only one that may be seen; None: all.
        after_id: The last one of the page before.
        limit: At most so many.
    """
    statement = select(projects).order_by(projects.c.id).limit(limit)
    if project_id is not None:
        statement = statement.where(projects.c.id == project_id)
    if after_id is not None:
        statement = statement.where(projects.c.id > after_id)
    return tx.execute(statement).all()


def add_project(tx: Transaction, *, name: str, allowed_globals: Sequence[str]) -> ProjectRow:
    """Add a project."""
    values = {"name": name, "allowed_globals": list(allowed_globals), "created_at": tx.now}
    return tx.execute(insert(projects).values(values).returning(projects)).one()

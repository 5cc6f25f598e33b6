"""Make and list projects."""

from collections.abc import Sequence

from ckptguard.errors import ConflictError, ForbiddenError
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.repositories.projects import ProjectRow, add_project, find_project, list_projects
from ckptguard_api.services import Services


def create_project(
    services: Services, name: str, allowed_globals: Sequence[str], *, by: Actor
) -> tuple[ProjectRow, bool]:
    """Make a project, or find the same one.

    Args:
        services: Of this process.
        name: Unique.
        allowed_globals: Names that `.metadata` and BYTES items may hold besides the known ones.
        by: Who asks; only a token of all projects may.

    Returns:
        The project, and whether it is new.

    Raises:
        ForbiddenError: The token has one project only.
        ConflictError: It exists with other settings.
    """
    if by.project_id is not None:
        msg = "only a token of all projects may make one"
        raise ForbiddenError(msg)
    wanted = sorted(set(allowed_globals))
    with services.database.write() as tx:
        row = find_project(tx, name)
        if row is not None and sorted(row.allowed_globals) != wanted:
            msg = f"project {name!r} exists with other allowed_globals"
            raise ConflictError(msg)
        return (row, False) if row is not None else (_added(tx, name, wanted), True)


def projects_seen_by(
    services: Services, actor: Actor, *, after_id: int | None, limit: int
) -> Sequence[ProjectRow]:
    """Return the actor's project, or all of them, oldest first."""
    with services.database.read() as tx:
        return list_projects(tx, project_id=actor.project_id, after_id=after_id, limit=limit)


def _added(tx: Transaction, name: str, allowed_globals: Sequence[str]) -> ProjectRow:
    return add_project(tx, name=name, allowed_globals=allowed_globals)

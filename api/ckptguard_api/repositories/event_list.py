"""The audit as operators read it, newest first."""

from sqlalchemy import select

from ckptguard.model.service import EventKind
from ckptguard_api.domain.paging import Query
from ckptguard_api.repositories.windows import Listing
from ckptguard_api.tables import events, runs


def event_listing(
    project_id: int, *, run_id: int | None, checkpoint_id: int | None, kind: EventKind | None
) -> Listing:
    """Return the list of the events of a project.

    Args:
        project_id: Only of this one.
        run_id: Only about this run; None: any.
        checkpoint_id: Only about this checkpoint; None: any.
        kind: Only of this kind; None: any.
    """
    about = {"run_id": run_id, "checkpoint_id": checkpoint_id}
    # The narrowest index first; what it gives is held against all the rest.
    narrowest = next((name for name in ("checkpoint_id", "run_id") if about[name] is not None), "project_id")
    wanted = {name: value for name, value in about.items() if value is not None}
    # The run was found in this project; a checkpoint is anybody's until the project is held against it.
    scope = wanted if narrowest == "run_id" else wanted | {"project_id": project_id}
    rest = [events.c[name] == value for name, value in scope.items() if name != narrowest]
    if kind is not None:
        rest.append(events.c.kind == kind.value)
    filters = wanted | ({} if kind is None else {"kind": kind.value})
    return Listing(
        query=Query(name=f"events/{project_id}", filters=filters, kinds=(int,)),
        rows=select(*events.c, runs.c.name.label("run")).outerjoin(runs, runs.c.id == events.c.run_id),
        served=[events.c[narrowest] == scope[narrowest]],
        rest=rest,
        order=[events.c.id],
    )

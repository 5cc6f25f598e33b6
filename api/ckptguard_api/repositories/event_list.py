"""The audit as operators read it, newest first."""

from sqlalchemy import ColumnElement, func, select

from ckptguard.model.service import EventKind
from ckptguard_api.domain.paging import Query
from ckptguard_api.repositories.windows import Listing
from ckptguard_api.tables import checkpoints, events, runs


def event_listing(
    project_id: int | None,
    *,
    run_id: int | None,
    checkpoint_id: int | None,
    kind: EventKind | None,
    actor: str | None = None,
) -> Listing:
    """Return the list of the events of a project, each with `run` and `step`.

    Args:
        project_id: Only of this one; None: only those that belong to none.
        run_id: Only about this run; None: any.
        checkpoint_id: Only about this checkpoint; None: any.
        kind: Only of this kind; None: any.
        actor: Only by those whose name has this in it, letter by letter; None: anybody.
    """
    about = {"run_id": run_id, "checkpoint_id": checkpoint_id}
    # The narrowest index first; what it gives is held against all the rest.
    narrowest = next((name for name in ("checkpoint_id", "run_id") if about[name] is not None), "project_id")
    wanted = {name: value for name, value in about.items() if value is not None}
    # The run was found in this project; a checkpoint is anybody's until the project is held against it.
    scope = wanted if narrowest == "run_id" else wanted | {"project_id": project_id}
    rest = [_is(name, value) for name, value in scope.items() if name != narrowest]
    filters: dict[str, int | str] = dict(wanted)
    if kind is not None:
        rest.append(events.c.kind == kind.value)
        filters["kind"] = kind.value
    if actor is not None:
        # Not LIKE: SQLite's knows no upper and lower case, PostgreSQL's does.
        rest.append(func.replace(events.c.actor, actor, "") != events.c.actor)
        filters["actor"] = actor
    return Listing(
        query=Query(name=f"events/{project_id}", filters=filters, kinds=(int,)),
        rows=select(*events.c, runs.c.name.label("run"), checkpoints.c.step)
        .outerjoin(runs, runs.c.id == events.c.run_id)
        .outerjoin(checkpoints, checkpoints.c.id == events.c.checkpoint_id),
        served=[_is(narrowest, scope[narrowest])],
        rest=rest,
        order=[events.c.id],
    )


def _is(name: str, value: int | None) -> ColumnElement[bool]:
    return events.c[name].is_(None) if value is None else events.c[name] == value

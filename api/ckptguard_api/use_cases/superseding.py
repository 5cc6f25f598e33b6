"""A place where a save is made: whatever stood at it, above it or below it has lost its bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ckptguard.errors import ConflictError, InvalidRequestError, LocationRefusedError
from ckptguard.model.manifest_laws import MAX_INTEGER
from ckptguard.model.service import EventKind, SupersededBy
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.branches import Place, is_on_the_way, lineage_of
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.locations import Location, place
from ckptguard_api.domain.own_folder import holds_service
from ckptguard_api.domain.registration import Announcement, Registration
from ckptguard_api.domain.run_policy import RunPolicy
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.queue import cancel_open
from ckptguard_api.repositories.branches import find_branch, origins_of
from ckptguard_api.repositories.checkpoints import CheckpointRow, standing_in, supersede_rewritten
from ckptguard_api.repositories.run_overview import add_run
from ckptguard_api.repositories.runs import RunRow, find_run, lock_project, lock_run, touch_run
from ckptguard_api.repositories.stores import roots_of

MAX_SUPERSEDED: Final = 1000
"""By one request. More than that is a location named too high up, and nothing is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a save is made, with everything locked that it may change.

    Args:
        run: Its run.
        location: Its place.
        standing: Ids of all that stands there, above and below; the save's own among them.
        facts: What became of the run: that it was created.
    """

    run: RunRow
    location: Location
    standing: tuple[int, ...]
    facts: tuple[Fact, ...]


def lock_site(
    tx: Transaction,
    request: Registration | Announcement,
    *,
    project_id: int,
    own_folders: Sequence[str],
    actor: Actor,
) -> Site:
    """Find out where a save is made; create its run with the first.

    Guarantees: until the commit no other registration or announcement of the project goes on, and no other
    transaction changes a checkpoint of a run that is concerned.

    Raises:
        LocationRefusedError: The place is in no store, unsafe, or the service's own.
        ConflictError: More than MAX_SUPERSEDED checkpoints stand there.
    """
    lock_project(tx, project_id)
    location = place(request.location, roots_of(tx, project_id))
    if holds_service(location.url, own_folders):
        msg = "the location is refused: the service's own folder lies there"
        raise LocationRefusedError(msg, problems=["/location: the service's own folder lies there"])
    found = find_run(tx, project_id, request.run)
    run_id = _new_run(tx, project_id, request.run, actor=actor) if found is None else found.id
    standing = standing_in(tx, project_id, location.url, limit=MAX_SUPERSEDED + 1)
    _require_few(standing, location)
    locked = {each: lock_run(tx, each) for each in sorted({run_id, *(row.run_id for row in standing)})}
    run = locked[run_id]
    return Site(
        run=run,
        location=location,
        standing=tuple(row.id for row in standing),
        facts=(_run_created(run),) if found is None else (),
    )


def supersede(tx: Transaction, site: Site, by: CheckpointRow) -> tuple[Sequence[CheckpointRow], Fact]:
    """Say of all that stands where a save is made, but of itself, that its bytes are gone.

    Returns:
        What was superseded, and the fact to record. `cancel_open` is still to be called, for each.
    """
    others = [each for each in site.standing if each != by.id]
    rows = supersede_rewritten(tx, others) if others else []
    for run_id in {row.run_id for row in rows}:
        touch_run(tx, run_id)
    data = {"superseded_by": SupersededBy.REWRITTEN.value, "by_checkpoint": by.id, "location": by.location}
    subjects = tuple(subject_of(row) for row in rows)
    return rows, Fact(kind=EventKind.CHECKPOINT_SUPERSEDED, about=subjects, data=data)


def cancel_superseded(tx: Transaction, rows: Sequence[CheckpointRow], *, actor: Actor) -> None:
    """Take back the validations of what was superseded."""
    for row in rows:
        if row.validation_state is not None:
            cancel_open(tx, row.id, why="another save was made at its location", actor=actor)


def branch_of(
    tx: Transaction, run: RunRow, request: Registration | Announcement, announced: CheckpointRow | None
) -> tuple[int, bool]:
    """Return the branch of a save, and whether it leads to where the run is now.

    Without a word it is that of its announcement: a job that was given up while the run goes on elsewhere
    does not come back with its last save. Else the current one.

    Raises:
        InvalidRequestError: The run has no such branch.
    """
    asked = request.branch
    if asked is not None and find_branch(tx, run.id, asked) is None:
        problem = f"/branch: run {run.name!r} has no branch {asked}; its current one is {run.branch}"
        raise InvalidRequestError(problem, problems=[problem])
    announced_in: int = run.branch if announced is None else announced.branch
    branch = announced_in if asked is None else asked
    return branch, _is_on_the_way(tx, run, Place(branch=branch, step=request.step))


def subject_of(row: CheckpointRow) -> Subject:
    """Return what an event about this checkpoint is about."""
    return Subject(project_id=row.project_id, run_id=row.run_id, checkpoint_id=row.id)


def _new_run(tx: Transaction, project_id: int, name: str, *, actor: Actor) -> int:
    return add_run(tx, project_id=project_id, name=name, policy=RunPolicy(), opened_by=actor.name)


def _run_created(run: RunRow) -> Fact:
    about = Subject(project_id=run.project_id, run_id=run.id)
    return Fact(kind=EventKind.RUN_CREATED, about=(about,), data={"name": run.name})


def _require_few(standing: Sequence[CheckpointRow], location: Location) -> None:
    if len(standing) > MAX_SUPERSEDED:
        msg = (
            f"more than {MAX_SUPERSEDED} checkpoints lie at, above or below {location.url}, and a save there "
            "would supersede them all; name the checkpoint's own folder"
        )
        raise ConflictError(msg)


def _is_on_the_way(tx: Transaction, run: RunRow, where: Place) -> bool:
    if where.branch == run.branch:
        return True
    now = Place(branch=run.branch, step=MAX_INTEGER)
    return is_on_the_way(where, lineage_of(now, origins_of(tx, run.id)))

"""Runs: make, change, look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, update

from ckptguard.errors import ConflictError, InvalidRequestError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.exposure import Exposure, SavePoint, exposure_of
from ckptguard_api.domain.paging import Page
from ckptguard_api.domain.run_policy import (
    RunPolicy,
    changed_policy,
    policy_of,
    policy_values,
    run_name_problems,
)
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.run_overview import (
    RunCounts,
    add_run,
    checkpoints_by_id,
    counts_of,
    find_overview,
    run_listing,
)
from ckptguard_api.repositories.runs import RunRow, find_run, get_run, lock_project, lock_run, touch_run
from ckptguard_api.repositories.windows import read_page
from ckptguard_api.services import Services
from ckptguard_api.tables import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """A run as an operator sees it.

    Args:
        row: Of `runs`.
        counts: Of its checkpoints.
        newest: Last one that is complete or being saved; None: there is none.
        newest_valid: Last one that a resume may use by the run's policy; None: there is none.
        exposure: What a failure now would cost.
    """

    row: RunRow
    counts: RunCounts
    newest: Row[Any] | None
    newest_valid: Row[Any] | None
    exposure: Exposure


def create_run(
    services: Services, *, project_id: int, name: str, policy: RunPolicy, actor: Actor
) -> tuple[RunOverview, bool]:
    """Make a run, or find the same one.

    Returns:
        The run, and whether it is new.

    Raises:
        InvalidRequestError: It cannot be called so.
        ConflictError: It exists with another policy.
    """
    problems = run_name_problems(name)
    if problems:
        msg = "a run cannot be called so"
        raise InvalidRequestError(msg, problems=problems)
    with services.database.write() as tx:
        lock_project(tx, project_id)
        there = find_run(tx, project_id, name)
        if there is None:
            _add(tx, project_id=project_id, name=name, policy=policy, actor=actor)
        elif policy_of(there) != policy:
            msg = f"run {name!r} exists with another policy"
            raise ConflictError(msg, problems=_differences(policy_of(there), policy))
        return _overview(tx, find_overview(tx, project_id, name)), there is None


def change_run(
    services: Services, *, project_id: int, name: str, changes: Mapping[str, Any], actor: Actor
) -> RunOverview:
    """Change the policy of a run; what stays the same is no change.

    Args:
        services: Of this process.
        project_id: Whose.
        name: Of the run.
        changes: Fields of `RunPolicy` with their new values.
        actor: Who asks.

    Raises:
        NotFoundError: There is no such run.
        InvalidRequestError: What comes out breaks a rule.
    """
    with services.database.write() as tx:
        row = lock_run(tx, get_run(tx, project_id, name).id)
        before = policy_of(row)
        after = changed_policy(before, dict(changes))
        if after != before:
            tx.execute(update(runs).where(runs.c.id == row.id).values(policy_values(after)))
            touch_run(tx, row.id)
            data = {"changes": _changes(before, after)}
            about = Subject(project_id=project_id, run_id=row.id)
            record(tx, EventKind.RUN_CHANGED, actor=actor, about=about, data=data)
        return _overview(tx, find_overview(tx, project_id, name))


def show_run(services: Services, *, project_id: int, name: str) -> RunOverview:
    """Return one run.

    Raises:
        NotFoundError: There is no such run.
    """
    with services.database.read() as tx:
        return _overview(tx, find_overview(tx, project_id, name))


def list_runs(services: Services, *, project_id: int, cursor: str | None, limit: int) -> Page[RunOverview]:
    """Return one page of the runs of a project, by name, last first.

    Raises:
        InvalidRequestError: The cursor belongs to another list.
    """
    with services.database.read() as tx:
        page = read_page(tx, run_listing(project_id), cursor=cursor, limit=limit)
        counts = counts_of(tx, [row.id for row in page.items])
        ids = {row.newest_id for row in page.items} | {row.newest_valid_id for row in page.items}
        known = checkpoints_by_id(tx, ids)
        items = tuple(_of(row, counts[row.id], known, now=tx.now) for row in page.items)
        return Page(items=items, next=page.next)


def _add(tx: Transaction, *, project_id: int, name: str, policy: RunPolicy, actor: Actor) -> None:
    run_id = add_run(tx, project_id=project_id, name=name, policy=policy, opened_by=actor.name)
    about = Subject(project_id=project_id, run_id=run_id)
    data = {"name": name, "policy": policy_values(policy)}
    record(tx, EventKind.RUN_CREATED, actor=actor, about=about, data=data)


def _overview(tx: Transaction, row: RunRow) -> RunOverview:
    known = checkpoints_by_id(tx, {row.newest_id, row.newest_valid_id})
    return _of(row, counts_of(tx, [row.id])[row.id], known, now=tx.now)


def _of(row: RunRow, counts: RunCounts, known: Mapping[int, Row[Any]], *, now: datetime) -> RunOverview:
    newest, valid = known.get(row.newest_id), known.get(row.newest_valid_id)
    return RunOverview(
        row=row,
        counts=counts,
        newest=newest,
        newest_valid=valid,
        exposure=exposure_of(
            now=now,
            newest_valid=None if valid is None else SavePoint(step=valid.step, created_at=valid.created_at),
            newest_step=None if newest is None else newest.step,
            gpus=row.gpus,
            usd_per_gpu_hour=row.usd_per_gpu_hour,
        ),
    )


def _changes(before: RunPolicy, after: RunPolicy) -> dict[str, Any]:
    old, new = policy_values(before), policy_values(after)
    return {name: {"from": old[name], "to": new[name]} for name in new if old[name] != new[name]}


def _differences(there: RunPolicy, asked: RunPolicy) -> list[str]:
    return [
        f"/{name}: {change['from']!r} there, {change['to']!r} asked"
        for name, change in _changes(there, asked).items()
    ]

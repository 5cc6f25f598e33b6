"""Runs as operators see them: rows with counts and the newest checkpoints, each from an index."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Row,
    ScalarSelect,
    Select,
    case,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.sql.elements import Tuple

from ckptguard.errors import NotFoundError
from ckptguard.model.service import Lifecycle
from ckptguard.model.verdict import Assurance
from ckptguard_api.database import Transaction
from ckptguard_api.domain.checkpoint_filter import NO_VERDICT
from ckptguard_api.domain.paging import Query
from ckptguard_api.domain.resume import WEAKEST_FIRST, Asked
from ckptguard_api.domain.run_policy import RunPolicy, policy_of, policy_values
from ckptguard_api.repositories.branches import add_branch
from ckptguard_api.repositories.runs import RunRow
from ckptguard_api.repositories.windows import Listing
from ckptguard_api.tables import USABLE, checkpoints, runs, validations

_ASSURANCES: Final = {level.value: level.rank for level in Assurance}
_PROVENANCES: Final = {level.value: rank for rank, level in enumerate(WEAKEST_FIRST)}
RUN_ORDER: Final = (checkpoints.c.branch, checkpoints.c.step, checkpoints.c.created_at, checkpoints.c.id)
"""The order of a run's checkpoints."""
NEWEST_FIRST: Final = tuple(column.desc() for column in RUN_ORDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """How many checkpoints of a run there are of each kind.

    Args:
        verdicts: By verdict in force, `none` where there is none; deleted ones are not counted.
        lifecycles: By lifecycle.
        open_validations: Queued or running.
    """

    verdicts: Mapping[str, int]
    lifecycles: Mapping[str, int]
    open_validations: int


def add_run(tx: Transaction, *, project_id: int, name: str, policy: RunPolicy, opened_by: str) -> int:
    """Add a run at branch 0, and return its id."""
    values = policy_values(policy) | {"revision": 1, "branch": 0, "created_at": tx.now}
    statement = insert(runs).values(project_id=project_id, name=name, **values).returning(runs.c.id)
    run_id: int = tx.execute(statement).scalar_one()
    add_branch(tx, run_id=run_id, number=0, opened_by=opened_by)
    return run_id


def overview(project_id: int) -> Select[Any]:
    """Select runs of a project with `newest_id` and `newest_valid_id`."""
    return _with_newest().where(runs.c.project_id == project_id)


def overview_of_all() -> Select[Any]:
    """Select runs of all projects, for scheduled work and metrics, as `overview` does."""
    return _with_newest()


def run_listing(project_id: int) -> Listing:
    """Return the list of the runs of a project, the one named last first."""
    return Listing(
        query=Query(name=f"runs/{project_id}", filters={}, kinds=(str,)),
        rows=_with_newest(),
        served=[runs.c.project_id == project_id],
        order=[runs.c.name],
    )


def find_overview(tx: Transaction, project_id: int, name: str) -> RunRow:
    """Return one run as `overview` selects it.

    Raises:
        NotFoundError: There is none.
    """
    row = tx.execute(overview(project_id).where(runs.c.name == name)).one_or_none()
    if row is None:
        msg = "no such run"
        raise NotFoundError(msg)
    return row


def _with_newest() -> Select[Any]:
    run = runs.c
    # An expression, which is only filtered by: as a condition of the index PostgreSQL looks for both values
    # at each step (1,000 runs: 16 ms instead of 4).
    lifecycle = func.coalesce(checkpoints.c.lifecycle, "")
    live = lifecycle.in_([Lifecycle.REGISTERED.value, Lifecycle.ANNOUNCED.value])
    is_far_enough = _rank(checkpoints.c.assurance, _ASSURANCES) >= _rank(run.min_assurance, _ASSURANCES)
    is_known_enough = or_(
        run.min_provenance.is_(None),
        _rank(checkpoints.c.provenance, _PROVENANCES) >= _rank(run.min_provenance, _PROVENANCES),
    )
    return select(
        *run,
        newest_of(run.id, live).label("newest_id"),
        newest_of(run.id, text(USABLE), is_far_enough, is_known_enough).label("newest_valid_id"),
    )


def newest_of(run_id: ColumnElement[int], *conditions: Any) -> ScalarSelect[int]:  # noqa: ANN401 - SQL
    """Select the id of the newest checkpoint of a run for which all conditions hold, by the run's order."""
    return (
        select(checkpoints.c.id)
        .where(checkpoints.c.run_id == run_id, *conditions)
        .order_by(*NEWEST_FIRST)
        .limit(1)
        .scalar_subquery()
    )


def _rank(level: ColumnElement[str], ranks: Mapping[str, int]) -> ColumnElement[int]:
    return case(dict(ranks), value=level)


def place_of(checkpoint: Row[Any]) -> Tuple:
    """Return where a checkpoint stands in the order of its run, to be compared with `RUN_ORDER`."""
    return tuple_(*(literal(getattr(checkpoint, column.key), column.type) for column in RUN_ORDER))


def has_older_usable(tx: Transaction, run: RunRow, checkpoint: Row[Any]) -> bool:
    """Say whether a run could start from a checkpoint that is older than this one."""
    is_older = tuple_(*RUN_ORDER) < place_of(checkpoint)
    policy = policy_of(run)
    asked = Asked(min_assurance=policy.min_assurance, min_provenance=policy.min_provenance)
    statement = select(checkpoints.c.id).where(
        checkpoints.c.run_id == run.id,
        text(USABLE),
        is_older,
        checkpoints.c.assurance.in_([level.value for level in asked.assurances]),
    )
    if asked.provenances:
        wanted = [level.value for level in asked.provenances]
        statement = statement.where(checkpoints.c.provenance.in_(wanted))
    return tx.execute(statement.limit(1)).one_or_none() is not None


def checkpoints_by_id(tx: Transaction, ids: Iterable[int | None]) -> dict[int, Row[Any]]:
    """Return checkpoints, all columns, by their ids."""
    wanted = [row_id for row_id in ids if row_id is not None]
    rows = tx.execute(select(checkpoints).where(checkpoints.c.id.in_(wanted))).all()
    return {row.id: row for row in rows}


def counts_of(tx: Transaction, run_ids: Sequence[int]) -> dict[int, RunCounts]:
    """Count the checkpoints of some runs.

    Cost: one index entry a checkpoint of these runs.
    """
    kinds = (checkpoints.c.run_id, checkpoints.c.lifecycle, checkpoints.c.verdict)
    counted = (
        select(*kinds, func.count().label("checkpoints"))
        .where(checkpoints.c.run_id.in_(run_ids))
        .group_by(*kinds)
    )
    groups = tx.execute(counted).all()
    opened = (
        select(validations.c.run_id, func.count().label("open"))
        .where(text("state IN ('queued','running')"), validations.c.run_id.in_(run_ids))
        .group_by(validations.c.run_id)
    )
    open_counts = {row.run_id: row.open for row in tx.execute(opened)}
    return {
        run_id: tally([row for row in groups if row.run_id == run_id], open_counts.get(run_id, 0))
        for run_id in run_ids
    }


def tally(groups: Iterable[Row[Any]], open_validations: int) -> RunCounts:
    """Add up groups of `lifecycle`, `verdict` and `checkpoints`, how many there are of both."""
    verdicts: dict[str, int] = {}
    lifecycles: dict[str, int] = {}
    for group in groups:
        lifecycles[group.lifecycle] = lifecycles.get(group.lifecycle, 0) + group.checkpoints
        if group.lifecycle != Lifecycle.DELETED:
            verdict = group.verdict or NO_VERDICT
            verdicts[verdict] = verdicts.get(verdict, 0) + group.checkpoints
    return RunCounts(verdicts=verdicts, lifecycles=lifecycles, open_validations=open_validations)

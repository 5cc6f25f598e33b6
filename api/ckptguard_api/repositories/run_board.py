"""What all runs of a project are judged by, in a few reads; none grows with the number of checkpoints."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Integer,
    Row,
    Select,
    Subquery,
    bindparam,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection
from sqlalchemy.sql.expression import TextualSelect

from ckptguard.model.service import Lifecycle
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.attention import Sight
from ckptguard_api.repositories.epochs import EpochS
from ckptguard_api.repositories.run_overview import newest_of, overview_of_all
from ckptguard_api.tables import checkpoints, runs, validations

MAX_RUNS: Final = 2000
"""Runs of a project that are judged at once; those made last."""
MAX_OPEN: Final = 20_000
MAX_HELD: Final = 5000

_NUM_SEEN: Final = {"last": 6, "newest": 10, "valid": 5, "invalid": 4, "unknown": 10}
_SEEN: Final = {which: Sight._fields[:number] for which, number in _NUM_SEEN.items()}
"""Of each of the five checkpoints: the first fields of a `Sight`, as many as it is judged by."""
_ID_OF: Final = {which: "newest_valid_id" if which == "valid" else f"{which}_id" for which in _SEEN}
_OF_RUN: Final = (
    "id",
    "made_s",
    "unprotected_after_s",
    "restarts_failing_s",
    "step_went_back_s",
    "name",
    "branch",
    "min_assurance",
    "gpus",
    "usd_per_gpu_hour",
)
_MOMENTS: Final = {
    "made_s": "created_at",
    "restarts_failing_s": "restarts_failing_at",
    "step_went_back_s": "step_went_back_at",
    "created_s": "created_at",
    "registered_s": "registered_at",
}
NUM_JUDGED_BY: Final = 5
"""Of a row of `board_rows`: its first columns, from `id` to `step_went_back_s`."""
_STARTS: Final = dict(
    zip(_SEEN, accumulate((len(names) for names in _SEEN.values()), initial=len(_OF_RUN)), strict=False)
)
NUM_COLUMNS_BEFORE_KIND: Final = 5
"""Of a row of `last_checkpoints`: those that follow tell its kind, `lifecycle` first."""
_OF_STRIP: Final = (
    checkpoints.c.branch,
    checkpoints.c.step,
    checkpoints.c.created_at,
    checkpoints.c.id,
    checkpoints.c.run_id,
    checkpoints.c.lifecycle,
    checkpoints.c.verdict,
    checkpoints.c.assurance,
    checkpoints.c.validation_state,
    checkpoints.c.is_quarantined,
    checkpoints.c.is_suspect,
)
_PLACE: Final = itemgetter(0, 1, 2, 3)
# `lower` of SQLite knows ASCII only: the name as it is written is always found.
_HAS_PART: Final = or_(
    runs.c.name.like(bindparam("part"), escape="/"),
    func.lower(runs.c.name).like(bindparam("part_lowered"), escape="/"),
)
_STRIP: Final = (
    f"SELECT {', '.join(column.name for column in _OF_STRIP)} "  # noqa: S608 - names of columns
    "FROM checkpoints WHERE run_id = :run_{number} "
    "ORDER BY branch DESC, step DESC, created_at DESC, id DESC LIMIT :most"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCount:
    """How many validations of a run are open; a sum over many is cut at `MAX_OPEN`."""

    queued: int = 0
    running: int = 0


def board_rows(
    tx: Transaction, project_id: int, *, name_part: str | None = None, run_name: str | None = None
) -> Sequence[Row[Any]]:
    """Return the runs of a project made last, each with the checkpoints that it is judged by.

    Args:
        tx: Where.
        project_id: Whose.
        name_part: Only runs whose name has it, whatever the case of ASCII letters.
        run_name: Only this one.

    Returns:
        What is told of a run (`_OF_RUN`), and of five checkpoints what `seen` takes apart: `last_…` of any
        lifecycle, `newest_…` complete or being saved, `valid_…` that a resume may use, `invalid_…` and
        `unknown_…`.

    Cost: five look-ups in indexes a run.
    """
    values = {"project_id": project_id, "run_name": run_name, "most": MAX_RUNS} | _parts(name_part)
    statement = _board(is_one=run_name is not None, is_filtered=bool(name_part))
    return tx.execute(statement, values).all()


def count_runs(tx: Transaction, project_id: int, *, name_part: str | None) -> int:
    """Count the runs of a project."""
    query = select(func.count()).select_from(runs).where(runs.c.project_id == project_id)
    if name_part:
        query = query.where(_HAS_PART)
    number: int = tx.execute(query, _parts(name_part)).scalar_one()
    return number


def open_counts(tx: Transaction, project_id: int) -> dict[int, OpenCount]:
    """Count the open validations of each run."""
    is_open = text("validations.state IN ('queued','running')")
    found = (
        select(validations.c.run_id, validations.c.state)
        .where(is_open, validations.c.project_id == project_id)
        .limit(MAX_OPEN)
        .subquery()
    )
    grouped = select(found.c.run_id, found.c.state, func.count().label("number"))
    counts: dict[int, dict[str, int]] = {}
    for row in tx.execute(grouped.group_by(found.c.run_id, found.c.state)):
        counts.setdefault(row.run_id, {})[row.state] = row.number
    return {run_id: OpenCount(**by_state) for run_id, by_state in counts.items()}


def held_checkpoints(tx: Transaction, project_id: int) -> dict[int, list[Sight]]:
    """Return the complete checkpoints of a project that are suspect or quarantined, by run; the newest."""
    one = checkpoints.c
    columns = (*(_column(one, name) for name in _SEEN["last"]), one.run_id)
    found: dict[int, dict[int, Sight]] = {}
    for flag in ("is_suspect", "is_quarantined"):
        # A partial index serves only a query that repeats its condition literally.
        held = select(*columns).where(one.project_id == project_id, text(flag))
        newest = held.order_by(one.created_at.desc(), one.id.desc()).limit(MAX_HELD)
        for row in tx.execute(newest):
            values: tuple[Any, ...] = row[:-1]
            sight = Sight(*values)
            if sight.lifecycle == Lifecycle.REGISTERED:
                found.setdefault(row.run_id, {})[sight.id] = sight
    return {run_id: list(by_id.values()) for run_id, by_id in found.items()}


def last_checkpoints(tx: Transaction, run_ids: Sequence[int], *, limit: int) -> dict[int, Sequence[Row[Any]]]:
    """Return the last checkpoints of some runs, oldest first, of each `limit` at most: what is drawn."""
    if not run_ids:
        return {}
    found: dict[int, list[Row[Any]]] = {run_id: [] for run_id in run_ids}
    parameters = {f"run_{number}": run_id for number, run_id in enumerate(run_ids)} | {"most": limit}
    for row in tx.execute(_strips(len(run_ids)), parameters):
        found[row.run_id].append(row)
    return {run_id: sorted(rows, key=_PLACE) for run_id, rows in found.items()}


def seen_id(row: Row[Any], which: str) -> int | None:
    """Return the id of what `seen` returns."""
    row_id: int | None = row[_STARTS[which]]
    return row_id


def seen(row: Row[Any], which: str) -> Sight | None:
    """Return one of the five checkpoints of a row of `board_rows`; None: there is none."""
    start = _STARTS[which]
    if row[start] is None:
        return None
    if row[start] == row[_STARTS["newest"]]:
        which, start = "newest", _STARTS["newest"]
    return Sight(*row[start : start + _NUM_SEEN[which]])


@cache
def _strips(count: int) -> TextualSelect:
    # As text: a union of 50 selects costs SQLAlchemy more than it costs the database.
    each = (f"SELECT * FROM ({_STRIP.format(number=number)}) AS strip_{number}" for number in range(count))  # noqa: S608 - numbers
    return text(" UNION ALL ".join(each)).columns(*_OF_STRIP)


def _complete(verdict: Verdict) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    is_complete = checkpoints.c.lifecycle == Lifecycle.REGISTERED.value
    return checkpoints.c.verdict == verdict.value, is_complete


def _parts(name_part: str | None) -> dict[str, str]:
    if not name_part:
        return {}
    escaped = re.sub(r"([%_/])", r"/\1", name_part)
    return {"part": f"%{escaped}%", "part_lowered": f"%{escaped.lower()}%"}


@cache
def _board(*, is_one: bool, is_filtered: bool) -> Select[Any]:
    # Made once: it has a hundred columns, and to put them together costs more than to ask.
    query = overview_of_all().add_columns(
        newest_of(runs.c.id).label("last_id"),
        newest_of(runs.c.id, *_complete(Verdict.INVALID)).label("invalid_id"),
        newest_of(runs.c.id, *_complete(Verdict.UNKNOWN)).label("unknown_id"),
    )
    query = query.where(runs.c.project_id == bindparam("project_id"))
    if is_one:
        query = query.where(runs.c.name == bindparam("run_name"))
    if is_filtered:
        query = query.where(_HAS_PART)
    newest = query.order_by(runs.c.id.desc()).limit(bindparam("most", type_=Integer))
    return _with_seen(newest.subquery("board"))


def _with_seen(board: Subquery) -> Select[Any]:
    source: FromClause = board
    columns: list[ColumnElement[Any]] = [_column(board.c, name).label(name) for name in _OF_RUN]
    for which, names in _SEEN.items():
        one, one_id = checkpoints.alias(which), board.c[_ID_OF[which]]
        # Most are the newest one: it is looked up once (`seen`).
        looked_up = one_id if which == "newest" else func.nullif(one_id, board.c["newest_id"])
        source = source.outerjoin(one, one.c.id == looked_up)
        columns += [one_id.label(f"{which}_id")]
        columns += [_column(one.c, name).label(f"{which}_{name}") for name in names[1:]]
    return select(*columns).select_from(source)


def _column(columns: ReadOnlyColumnCollection[str, Any], name: str) -> ColumnElement[Any]:
    if name == "has_retry":
        has_retry: ColumnElement[bool] = columns["retry_at"].is_not(None)
        return has_retry
    column: ColumnElement[Any] = columns[_MOMENTS.get(name, name)]
    return EpochS(column) if name in _MOMENTS else column

"""All runs of a project, what needs a person first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Row

from ckptguard_api.database import Transaction
from ckptguard_api.domain.attention import Attention, Judged, RunFacts, Sight, judge
from ckptguard_api.domain.exposure import Exposure, SavePoint, exposure_of
from ckptguard_api.repositories import run_board
from ckptguard_api.repositories.run_board import MAX_RUNS, NUM_JUDGED_BY, OpenCount, seen, seen_id
from ckptguard_api.services import Services

RUNS_A_PAGE: Final = 50
STRIP_CHECKPOINTS: Final = 40
_DAY_S: Final = 86_400.0
_NOTHING_OPEN: Final = OpenCount()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRun:
    """One run of the list.

    Args:
        row: Of `board_rows`.
        judged: Why it is where it is.
        newest: Last one that is complete or being saved; None: there is none.
        valid: Last one that a resume may use; None: there is none.
        exposure: What a failure now would cost.
        open: Its open validations.
        num_held: Complete ones that are suspect or quarantined.
        strip: Its last checkpoints, oldest first.
    """

    row: Row[Any]
    judged: Judged
    newest: Sight | None
    valid: Sight | None
    exposure: Exposure
    open: OpenCount
    num_held: int
    strip: Sequence[Row[Any]]


class _Placed(NamedTuple):
    """A run and its place in the list; there are a thousand of them, so it is no more than that."""

    row: Row[Any]
    facts: RunFacts
    judged: Judged
    place: tuple[int, float, float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One page of the list.

    Args:
        now: Time that it is judged at.
        shown: Runs of this page, in order.
        counts: Runs by attention, before the filter by it.
        matching: Runs that pass all filters, among those judged.
        total: Runs whose name passes.
        is_cut: More than `MAX_RUNS` pass: only those made last are judged.
        page: Number of this page, from 1.
        pages: How many there are.
    """

    now: datetime
    shown: Sequence[BoardRun]
    counts: Mapping[Attention, int]
    matching: int
    total: int
    is_cut: bool
    page: int
    pages: int


def show_board(
    services: Services,
    *,
    project_id: int,
    name_part: str | None = None,
    wanted: frozenset[Attention] | None = None,
    page: int = 1,
) -> Board:
    """Return one page of the runs of a project; a page beyond the end is the last.

    Args:
        services: Of this process.
        project_id: Whose.
        name_part: Only runs whose name has it.
        wanted: Only runs with one of these; None: any.
        page: From 1.

    Cost: every run that passes is judged, `MAX_RUNS` at most.
    """
    with services.database.read() as tx:
        rows = run_board.board_rows(tx, project_id, name_part=name_part)
        placed = sorted(_placed(services, tx, project_id, rows), key=lambda run: run.place)
        matching = [run for run in placed if wanted is None or run.judged.attention in wanted]
        pages = max(1, -(-len(matching) // RUNS_A_PAGE))
        page = min(page, pages)
        total = len(rows)
        if total == MAX_RUNS:
            total = run_board.count_runs(tx, project_id, name_part=name_part)
        return Board(
            now=tx.now,
            shown=_shown(tx, project_id, matching[(page - 1) * RUNS_A_PAGE : page * RUNS_A_PAGE]),
            counts=Counter(run.judged.attention for run in placed),
            matching=len(matching),
            total=total,
            is_cut=total > MAX_RUNS,
            page=page,
            pages=pages,
        )


def find_on_board(services: Services, tx: Transaction, *, project_id: int, name: str) -> BoardRun | None:
    """Return one run as the list shows it; None: there is no such run."""
    rows = run_board.board_rows(tx, project_id, run_name=name)
    return next(iter(_shown(tx, project_id, _placed(services, tx, project_id, rows))), None)


def _placed(services: Services, tx: Transaction, project_id: int, rows: Sequence[Row[Any]]) -> list[_Placed]:
    held = run_board.held_checkpoints(tx, project_id)
    active_s = services.settings.metrics_active_days * _DAY_S
    now_s = tx.now.timestamp()
    placed = []
    for row in rows:
        facts = _facts(row, held.get(row[0], ()))
        judged = judge(facts, now_s=now_s, active_s=active_s)
        place = _place(row, facts, judged, now_s=now_s)
        placed.append(_Placed(row=row, facts=facts, judged=judged, place=place))
    return placed


def _place(row: Row[Any], facts: RunFacts, judged: Judged, *, now_s: float) -> tuple[int, float, float, str]:
    """Return where a run stands: the worst first, then what costs most; of those that are over the last."""
    rank = judged.attention.rank
    if judged.attention is Attention.INACTIVE:
        return (rank, 0.0, -facts.active_s, row.name)
    seconds = 0.0 if facts.valid is None else now_s - facts.valid.created_s
    return (rank, -seconds * (row.gpus or 0) * (row.usd_per_gpu_hour or 0.0), -seconds, row.name)


def _shown(tx: Transaction, project_id: int, placed: Sequence[_Placed]) -> list[BoardRun]:
    opened = run_board.open_counts(tx, project_id)
    strips = run_board.last_checkpoints(tx, [run.row.id for run in placed], limit=STRIP_CHECKPOINTS)
    return [
        BoardRun(
            row=run.row,
            judged=run.judged,
            newest=run.facts.newest,
            valid=run.facts.valid,
            exposure=_exposure(run.row, run.facts, now=tx.now),
            open=opened.get(run.row.id, _NOTHING_OPEN),
            num_held=len(run.facts.held),
            strip=strips[run.row.id],
        )
        for run in placed
    ]


def _facts(row: Row[Any], held: Sequence[Sight]) -> RunFacts:
    # By place, not by name, and each checkpoint once: there are a thousand runs, and most are healthy.
    newest = seen(row, "newest")
    newest_id = None if newest is None else newest.id
    judged_by: tuple[Any, ...] = tuple(row[:NUM_JUDGED_BY])
    _, made_s, unprotected_after_s, restarts_failing_s, step_went_back_s = judged_by
    return RunFacts(
        made_s=made_s,
        last=newest if seen_id(row, "last") == newest_id else seen(row, "last"),
        newest=newest,
        valid=newest if seen_id(row, "valid") == newest_id else seen(row, "valid"),
        invalid=seen(row, "invalid"),
        unknown=seen(row, "unknown"),
        held=held,
        unprotected_after_s=unprotected_after_s,
        restarts_failing_s=restarts_failing_s,
        step_went_back_s=step_went_back_s,
    )


def _exposure(row: Row[Any], facts: RunFacts, *, now: datetime) -> Exposure:
    valid = facts.valid
    return exposure_of(
        now=now,
        newest_valid=None if valid is None else SavePoint(step=valid.step, created_at=valid.created_at),
        newest_step=None if facts.newest is None else facts.newest.step,
        gpus=row.gpus,
        usd_per_gpu_hour=row.usd_per_gpu_hour,
    )

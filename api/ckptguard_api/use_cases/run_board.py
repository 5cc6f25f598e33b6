"""All runs of a project, what needs a person first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row

from ckptguard_api.database import Transaction
from ckptguard_api.domain.attention import Attention, Judged, RunFacts, Sight, judge
from ckptguard_api.domain.exposure import Exposure, SavePoint, exposure_of
from ckptguard_api.repositories import run_board
from ckptguard_api.repositories.run_board import MAX_RUNS, OpenCount, seen
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
        strip: Its last checkpoints, oldest first; only of those shown.
    """

    row: Row[Any]
    judged: Judged
    newest: Sight | None
    valid: Sight | None
    exposure: Exposure
    open: OpenCount
    num_held: int
    strip: Sequence[Row[Any]] = ()

    @property
    def place(self) -> tuple[int, float, float, str]:
        """Where it stands in the list: the worst first, then what costs most."""
        usd, seconds = self.exposure.usd or 0.0, self.exposure.seconds or 0.0
        if self.judged.attention is Attention.INACTIVE and self.judged.since is not None:
            return (self.judged.attention.rank, 0.0, -self.judged.since.timestamp(), self.row.name)
        return (self.judged.attention.rank, -usd, -seconds, self.row.name)


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
        judged = sorted(judged_runs(services, tx, project_id, rows), key=lambda run: run.place)
        matching = [run for run in judged if wanted is None or run.judged.attention in wanted]
        pages = max(1, -(-len(matching) // RUNS_A_PAGE))
        page = min(page, pages)
        shown = matching[(page - 1) * RUNS_A_PAGE : page * RUNS_A_PAGE]
        total = len(rows)
        if total == MAX_RUNS:
            total = run_board.count_runs(tx, project_id, name_part=name_part)
        return Board(
            now=tx.now,
            shown=_with_strips(tx, shown),
            counts=Counter(run.judged.attention for run in judged),
            matching=len(matching),
            total=total,
            is_cut=total > MAX_RUNS,
            page=page,
            pages=pages,
        )


def judged_runs(
    services: Services, tx: Transaction, project_id: int, rows: Sequence[Row[Any]]
) -> Iterator[BoardRun]:
    """Yield runs as the list shows them, without their strips.

    Args:
        services: Of this process.
        tx: Where.
        project_id: Whose.
        rows: As `board_rows` gives them.
    """
    opened = run_board.open_counts(tx, project_id)
    held = run_board.held_checkpoints(tx, project_id)
    active_s = services.settings.metrics_active_days * _DAY_S
    now = tx.now
    for row in rows:
        facts = _facts(row, held.get(row.id, ()))
        yield BoardRun(
            row=row,
            judged=judge(facts, now=now, active_s=active_s),
            newest=facts.newest,
            valid=facts.valid,
            exposure=_exposure(row, facts, now=now),
            open=opened.get(row.id, _NOTHING_OPEN),
            num_held=len(facts.held),
        )


def _with_strips(tx: Transaction, shown: Sequence[BoardRun]) -> list[BoardRun]:
    strips = run_board.last_checkpoints(tx, [run.row.id for run in shown], limit=STRIP_CHECKPOINTS)
    return [replace(run, strip=strips[run.row.id]) for run in shown]


def _facts(row: Row[Any], held: Sequence[Sight]) -> RunFacts:
    newest = seen(row, "newest")
    # Of most runs the newest one is the last and VALID too; there are a thousand of them.
    return RunFacts(
        made_at=row.created_at,
        last=newest if row.last_id == row.newest_id else seen(row, "last"),
        newest=newest,
        valid=newest if row.valid_id == row.newest_id else seen(row, "valid"),
        invalid=seen(row, "invalid"),
        unknown=seen(row, "unknown"),
        held=held,
        unprotected_after_s=row.unprotected_after_s,
        restarts_failing_at=row.restarts_failing_at,
        step_went_back_at=row.step_went_back_at,
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

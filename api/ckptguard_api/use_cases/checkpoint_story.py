"""What came of a checkpoint: who started from it, and what was saved after that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row

from ckptguard_api.domain.starts import by_attempt
from ckptguard_api.repositories import lineage
from ckptguard_api.repositories.checkpoint_list import find_checkpoint
from ckptguard_api.services import Services

MAX_REPORTS: Final = 500
MAX_BRANCHES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the run from a checkpoint.

    Args:
        attempt: The launcher's name of it.
        reports: What was told of it, oldest first.
    """

    attempt: str
    reports: tuple[Row[Any], ...]

    @property
    def started_at(self) -> datetime:
        """When it was first told of."""
        moment: datetime = self.reports[0].reported_at
        return moment

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it ran, as far as told."""
        return tuple(sorted({node for report in self.reports for node in report.nodes}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """Everything that rests on a checkpoint.

    Args:
        starts: Newest first; those of the last `MAX_REPORTS` reports.
        branches: Opened from it, newest first; at most `MAX_BRANCHES`.
        saves: Checkpoints in each of these branches, up to `lineage.MAX_COUNTED`.
        is_cut: There are older reports or branches.
    """

    starts: tuple[Start, ...]
    branches: Sequence[Row[Any]]
    saves: Mapping[int, int]
    is_cut: bool


def show_descent(services: Services, *, project_id: int, checkpoint_id: int) -> Descent:
    """Return what came of a checkpoint.

    Raises:
        NotFoundError: There is no such checkpoint.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        reports = lineage.restarts_from(tx, row.id, limit=MAX_REPORTS)
        branches = lineage.branches_from(tx, row.run_id, row.id, limit=MAX_BRANCHES)
        saves = {branch.number: lineage.saves_in(tx, row.run_id, branch.number) for branch in branches}
    return Descent(
        starts=_starts(reports),
        branches=branches,
        saves=saves,
        is_cut=len(reports) == MAX_REPORTS or len(branches) == MAX_BRANCHES,
    )


def _starts(newest_first: Sequence[Row[Any]]) -> tuple[Start, ...]:
    return tuple(
        Start(attempt=attempt, reports=tuple(reversed(reports)))
        for attempt, reports in by_attempt(newest_first).items()
    )

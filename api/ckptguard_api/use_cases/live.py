"""Where a stream of events begins, and whose it is; whether anything happened since somebody looked."""

from dataclasses import dataclass
from datetime import datetime

from ckptguard.errors import NotFoundError
from ckptguard_api.repositories.event_feed import newest_event_id, newest_progress_at
from ckptguard_api.repositories.runs import find_run, get_run
from ckptguard_api.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestNews:
    """The last that is known of a project, or of a run.

    Args:
        now: Of the database.
        position: Newest event of all projects, where a stream goes on.
        event_id: Newest event of this project or run.
        progress_at: When a validation of this run last got on; None: none runs, or no run was named.
    """

    now: datetime
    position: int
    event_id: int
    progress_at: datetime | None


def latest_news(services: Services, *, project_id: int, run: str | None = None) -> LatestNews:
    """Return the last that is known; while it is the same, nothing that events tell has changed.

    Args:
        services: Of this process.
        project_id: Whose.
        run: Only of this run; None: of the project.

    Raises:
        NotFoundError: There is no such run.

    Cost: some look-ups in indexes, however much there is.
    """
    with services.database.read() as tx:
        run_id = None if run is None else get_run(tx, project_id, run).id
        return LatestNews(
            now=tx.now,
            position=newest_event_id(tx),
            event_id=newest_event_id(tx, project_id=project_id, run_id=run_id),
            progress_at=None if run_id is None else newest_progress_at(tx, run_id),
        )


def newest_event(services: Services) -> int:
    """Return the id of the newest event of all projects; 0: there is none."""
    with services.database.read() as tx:
        return newest_event_id(tx)


def run_to_hear_of(services: Services, project_id: int, name: str) -> int:
    """Return the id of a run.

    Raises:
        NotFoundError: There is no such run.
    """
    with services.database.read() as tx:
        row = find_run(tx, project_id, name)
    if row is None:
        msg = f"no run {name!r}"
        raise NotFoundError(msg)
    return int(row.id)

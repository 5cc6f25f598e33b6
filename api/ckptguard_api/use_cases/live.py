"""Where a stream of events begins, and whose it is."""

from ckptguard.errors import NotFoundError
from ckptguard_api.repositories.event_feed import newest_event_id
from ckptguard_api.repositories.runs import find_run
from ckptguard_api.services import Services


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

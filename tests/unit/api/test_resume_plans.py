"""How SQLite reads a resume target: from the indexes made for it, however many checkpoints there are."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from ckptguard.model.service import Lifecycle
from ckptguard_api.database import Database
from ckptguard_api.domain.resume import Asked
from ckptguard_api.repositories.resume import narrow
from ckptguard_api.repositories.runs import find_run
from tests.databases import fresh_database
from tests.service_rows import add_checkpoint, add_project, add_run, add_store


def plans_of(database: Database, asked: Asked) -> list[str]:
    """Return how each query of a choice among many is answered."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:  # noqa: ANN401 - of a driver
        seen.append((statement, parameters))

    with database.read() as tx:
        run = find_run(tx, 1, "r")
        assert run is not None
        event.listen(database.engine, "before_cursor_execute", note)
        narrow(tx, run, asked, max_passed_over=1)
        event.remove(database.engine, "before_cursor_execute", note)
        explained = [
            tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            for statement, parameters in seen
        ]
        return [" / ".join(row[3] for row in rows) for rows in explained]


@pytest.mark.parametrize(
    "asked", [Asked(), Asked(before_step=1000), Asked(require_newest=True), Asked(exclude=(1, 2, 3))]
)
def test_no_read_walks_over_damaged_checkpoints(asked: Asked, tmp_path: Path) -> None:
    with fresh_database("sqlite", folder=tmp_path) as database:
        with database.write() as tx:
            store_id = add_store(tx, add_project(tx))
            run_id = add_run(tx, 1, "r")
            for step in range(5):
                add_checkpoint(tx, run_id, store_id, step=step, lifecycle=Lifecycle.INCOMPLETE)
        plans = plans_of(database, asked)
    assert all("run_id=?" in plan for plan in plans if "checkpoints" in plan)
    assert "ix_checkpoints_usable" in plans[0]
    assert sum("ix_checkpoints_open" in plan for plan in plans) == 2
    assert not any("FOR ORDER BY" in plan for plan in plans)

"""One run with checkpoints, and a launcher that tells of its starts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Row, select

from ckptguard.model.service import EventKind, Lifecycle, RestartOutcome
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Announcement, Registration
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, events, runs
from ckptguard_api.use_cases.announce import announce
from ckptguard_api.use_cases.register import register
from ckptguard_api.use_cases.restarts import RestartAnswer, report_restart
from tests import service_rows as rows

RESUMED: Final = RestartOutcome.RESUMED
LOADING: Final = RestartOutcome.FAILED_LOADING
EARLY: Final = RestartOutcome.FAILED_EARLY
PROGRESSED: Final = RestartOutcome.PROGRESSED


@dataclass(kw_only=True)
class Training:
    """Of project `default`, in store `demo`; its name is `run-7`."""

    database: Database
    project_id: int = 0
    run_id: int = 0
    store_id: int = 0
    _attempts: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        with self.database.write() as tx:
            self.project_id = rows.add_project(tx)
            self.store_id = rows.add_store(tx, self.project_id)
            self.run_id = rows.add_run(tx, self.project_id)

    @property
    def services(self) -> Services:
        """Return the services of one process."""
        return Services(database=self.database, settings=Settings())

    def save(self, step: int, **columns: Any) -> int:  # noqa: ANN401 - columns
        """Add a VALID checkpoint in the current branch, unless told otherwise."""
        columns = {"verdict": Verdict.VALID, "branch": self.run.branch} | columns
        with self.database.write() as tx:
            return rows.add_checkpoint(tx, self.run_id, self.store_id, step=step, **columns)

    def register(self, step: int, folder: str | None = None, **fields: Any) -> int:  # noqa: ANN401 - of the registration
        """Tell of a save, as a job does, and return its checkpoint; its folder is named by its step."""
        location = _at(folder or f"step-{step}")
        request = Registration(run="run-7", step=step, location=location, save_id=location.path, **fields)
        done = register(self.services, request, project_id=self.project_id, actor=SERVICE)
        found: int = done.checkpoint.id
        return found

    def announce(self, step: int) -> int:
        """Tell of a save that begins, and return its checkpoint."""
        request = Announcement(run="run-7", step=step, location=_at(f"step-{step}"))
        done = announce(self.services, request, project_id=self.project_id, actor=SERVICE)
        found: int = done.checkpoint.id
        return found

    def tell(self, outcome: RestartOutcome, checkpoint_id: int | None = None, **fields: Any) -> RestartAnswer:  # noqa: ANN401 - of the report
        """Report one start."""
        attempt = fields.pop("attempt", None) or f"start-{next(self._attempts)}"
        report = RestartReport(attempt=attempt, outcome=outcome, checkpoint_id=checkpoint_id, **fields)
        return report_restart(
            self.services, project_id=self.project_id, run_name="run-7", report=report, actor=SERVICE
        )

    def fail(self, checkpoint_id: int, *nodes: str) -> None:
        """Resume from a checkpoint and fail in load, once on each set of nodes."""
        for names in nodes:
            attempt = f"start-{next(self._attempts)}"
            self.tell(RESUMED, checkpoint_id, attempt=attempt)
            self.tell(LOADING, attempt=attempt, nodes=tuple(names.split()))

    @property
    def run(self) -> Row[Any]:
        """Return the row of the run."""
        with self.database.read() as tx:
            return tx.execute(select(runs)).one()

    def row(self, checkpoint_id: int) -> Row[Any]:
        """Return a checkpoint."""
        with self.database.read() as tx:
            return tx.execute(select(checkpoints).where(checkpoints.c.id == checkpoint_id)).one()

    def live(self) -> list[int]:
        """Return the ids of registered checkpoints."""
        with self.database.read() as tx:
            live = checkpoints.c.lifecycle == Lifecycle.REGISTERED.value
            return list(tx.execute(select(checkpoints.c.id).where(live).order_by(checkpoints.c.id)).scalars())

    def suspects(self) -> list[int]:
        """Return the ids of suspect checkpoints."""
        with self.database.read() as tx:
            return list(tx.execute(select(checkpoints.c.id).where(checkpoints.c.is_suspect)).scalars())

    def events(self, kind: EventKind) -> Sequence[Row[Any]]:
        """Return the events of a kind, oldest first."""
        with self.database.read() as tx:
            return tx.execute(select(events).where(events.c.kind == kind.value).order_by(events.c.id)).all()


def _at(folder: str) -> AskedLocation:
    return AskedLocation(store="demo", path=f"told/{folder}")

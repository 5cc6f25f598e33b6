"""One service and its model, and what all that act on them need."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

from ckptguard.errors import ConflictError, LeaseLostError, ServiceUnavailableError
from ckptguard.model.manifest import Manifest, Origin
from ckptguard.model.policy import Depth
from ckptguard.testing.fakes import FakeClock
from ckptguard.testing.manifests import manifest_of
from ckptguard_api.database import Database
from ckptguard_api.domain.resume import Question
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from tests.property.leasing_simulation import Fault
from tests.property.service_model import (
    MAX_FAILED_ATTEMPTS,
    MAX_RETRIES,
    RETRY_FIRST_S,
    ExpectedAnswer,
    Save,
    ServiceModel,
)

T = TypeVar("T")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
RUNS: Final = ("r", "s")
PLACES: Final = ("demo/a", "demo/a/b", "demo/c", "demo/d", "demo/d/e/f", "cold/g", "demo/h", "demo/i")
PLACES_APART: Final = ("demo/c", "demo/h", "demo/i")
DEVICES: Final = ("cpu", "cuda:0 NVIDIA H200")
CONTENTS: Final = ("sound", "bent")
WORKERS: Final = ("w1", "w2")
LEASE_S: Final = 60.0
STEPS: Final = 14
PRICE: Final = {"gpus": 8, "usd_per_gpu_hour": 3.0}
SETTINGS: Final = Settings(
    lease_s=LEASE_S,
    max_counted_attempts=MAX_FAILED_ATTEMPTS,
    retry_first_s=RETRY_FIRST_S,
    max_retries=MAX_RETRIES,
)
PARTS: Final = ("model", "optimizer")


class Stage:
    """A service in memory, the model of it, and chance.

    Args:
        database: With a project `p` and the stores `demo` and `cold`; no worker maps the second.
        clock: The database's.
        seed: Decides everything.
        is_told: Print what happens.
    """

    def __init__(self, database: Database, clock: FakeClock, seed: int, *, is_told: bool = False) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - to be replayed
        self.clock = clock
        self.database = database
        self.services = Services(database=database, settings=SETTINGS, tracing=None)
        self.raw: Any = database.engine.raw_connection().driver_connection
        self.model = ServiceModel(clock.now)
        self.requests: list[tuple[Any, int]] = []
        self.leases: dict[int, dict[str, Any]] = {}
        self.num_starts = 0
        self._is_told = is_told

    def _shown(self) -> dict[str, Any]:
        """Return what a resume target may show, as the tables have it."""
        columns = (
            "branch, step, created_at, lifecycle, superseded_by, verdict, assurance, provenance,"
            " device, validated_at, is_quarantined, is_suspect, is_pinned, validation_state"
        )
        rows = self.raw.execute(f"SELECT run_id, id, {columns} FROM checkpoints ORDER BY id").fetchall()  # noqa: S608 - constants
        names = dict(self.raw.execute("SELECT id, name FROM runs").fetchall())
        return {name: [row for row in rows if row[0] == run_id] for run_id, name in names.items()}

    def _revisions(self) -> dict[str, int]:
        return dict(self.raw.execute("SELECT name, revision FROM runs").fetchall())

    def _call(
        self,
        act: Callable[[], T],
        *,
        is_refused: bool = False,
        on_done: Callable[[], None] | None = None,
    ) -> T | None:
        """Call the service, now and then with a database that goes away; None: nothing was done."""
        try:
            with self._faults():
                done = act()
        except ServiceUnavailableError:
            self._tell("the database went away")
            return None
        except (ConflictError, LeaseLostError):
            if not is_refused:
                raise
            return None
        assert not is_refused, "what must be refused was done"
        if on_done is not None:
            on_done()
        return done

    @contextmanager
    def _faults(self) -> Iterator[None]:
        if self.chance.random() >= 0.06:
            yield
            return
        fault = Fault(self.database.engine, after=self.chance.randrange(25))
        try:
            yield
        finally:
            fault.remove()

    def _saves(self) -> list[Save]:
        return list(self.model.saves.values())

    def _any_start(self) -> Save | None:
        """Return what a launcher would start from, most often; else any save."""
        run = self.chance.choice(RUNS[:1] * 3 + RUNS[1:])
        policy = self.model.runs[run]["min_level"] if run in self.model.runs else "loaded"
        asked = asdict(Question()) | {"min_assurance": policy}
        target = ExpectedAnswer(self.model, run, asked, self.clock.now()).target
        return self._any_save() if target is None or self.chance.random() < 0.2 else self.model.saves[target]

    def _any_save(self) -> Save | None:
        saves = self._saves()
        if not saves:
            return None
        return self.chance.choice(saves[-4:] if self.chance.random() < 0.6 else saves)

    def _step_of(self, run: str) -> int:
        steps = [one["step"] for one in self._saves() if one["run"] == run]
        return max(0, (steps[-1] if steps else 0) + self.chance.choice((-1, 0, 1, 1, 1, 2)))

    def _branch_told(self, run: str) -> int | None:
        known = self.model.runs.get(run)
        if known is None or self.chance.random() < 0.8:
            return None
        branches: list[int] = sorted(known["origins"])
        return self.chance.choice(branches)

    def _depth(self) -> Depth:
        return self.chance.choices([Depth.LOAD, Depth.CONTENT, Depth.STRUCTURE], [6, 1, 1])[0]

    def _in(self, seconds: float) -> datetime:
        return self.clock.now() + timedelta(seconds=seconds)

    def _open_id(self, row_id: int) -> int:
        found: tuple[int] = self.raw.execute(
            "SELECT id FROM validations WHERE checkpoint_id = ? AND state IN ('queued', 'running')", (row_id,)
        ).fetchone()
        return found[0]

    def _tell(self, what: str) -> None:
        if self._is_told:
            sys.stdout.write(f"{self.clock.now():%H:%M:%S} {what}\n")


@cache
def manifest_from(origin: Origin) -> Manifest:
    return manifest_of({".metadata": b"m", "__0_0.distcp": b"x"}, origin=origin)

"""A project in which a bit of everything happened, under names that want to be markup."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, func, select

from ckptguard.model.policy import Depth
from ckptguard.model.service import EventKind, Hold, Scope
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.file_map import FileState
from ckptguard_api.domain.files_going import PackedResult
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.file_results import store_file_results
from ckptguard_api.services import Services
from ckptguard_api.tables import checkpoints, events, projects
from ckptguard_api.use_cases.holds import hold_checkpoint
from ckptguard_api.use_cases.notes import note_checkpoint
from ckptguard_api.use_cases.revalidate import request_validation
from tests import service_rows as rows
from tests.leased_service import key_of

SCRIPT: Final = "<script>alert(1)</script>"
HOSTILE: Final = f"\"'>{SCRIPT}<img src=x onerror=alert(2)>{{{{7*7}}}}\u202e&lt;javascript:alert(3)"
RUN: Final = HOSTILE.replace("/", "")  # no name of a run has a slash
FORMULA: Final = "=HYPERLINK(1)"

OPERATOR: Final = Actor(name=f"token:{HOSTILE} (ckg_ab12)", project_id=None, scopes=frozenset({Scope.ADMIN}))


@dataclass(frozen=True, kw_only=True)
class BusyProject:
    """Ids of its rows.

    Args:
        project_id: Of `default`.
        run: A run with a hostile name.
        good: VALID, and what launchers get.
        older: VALID, and what they get without `good`.
        bad: INVALID, with a hostile finding.
        finished: Validation of `bad`.
        running: Validation that a worker of a hostile name is at.
    """

    project_id: int
    run: str
    good: int
    older: int
    bad: int
    finished: int
    running: int


def fill(services: Services) -> BusyProject:
    """Let a bit of everything happen in project `default`."""
    with services.database.write() as tx:
        project_id = tx.execute(select(projects.c.id).where(projects.c.name == "default")).scalar_one()
        store = rows.add_store(tx, project_id)
        run = rows.add_run(tx, project_id, RUN)
        hour = timedelta(hours=1)
        columns: dict[str, Any] = {"save_id": HOSTILE, "path": HOSTILE, "format": HOSTILE}
        older = rows.add_checkpoint(
            tx, run, store, step=100, verdict=Verdict.VALID, created_at=tx.now - 3 * hour
        )
        good = rows.add_checkpoint(
            tx, run, store, step=200, verdict=Verdict.VALID, created_at=tx.now - 2 * hour
        )
        bad = rows.add_checkpoint(
            tx, run, store, step=300, verdict=Verdict.INVALID, created_at=tx.now - hour, **columns
        )
        new = rows.add_checkpoint(tx, run, store, step=400, created_at=tx.now)
        judged = select(checkpoints.c.verdict_validation_id).where(checkpoints.c.id == bad)
        finished: int = tx.execute(judged).scalar_one()
        for number in range(30):
            rows.add_finding(tx, finished, message=HOSTILE if number % 2 else FORMULA)
        rows.add_check(tx, finished, "content", "fail")
        rows.add_worker(
            tx, HOSTILE, seen_at=tx.now - hour, capabilities={"stores": [HOSTILE], "torch": HOSTILE}
        )
        told = {"attempt": HOSTILE, "outcome": "failed_early", "steps_done": 3, "detail": FORMULA}
        about = Subject(project_id=project_id, run_id=run)
        record(tx, EventKind.RUN_RESTARTED, actor=OPERATOR, about=about, data=told)
    request_validation(
        services, project_id=project_id, checkpoint_id=new, depth=Depth.LOAD, reason=FORMULA, actor=OPERATOR
    )
    running = _running(services)
    hold_checkpoint(
        services, project_id=project_id, checkpoint_id=bad, hold=Hold.PINNED, reason=SCRIPT, actor=OPERATOR
    )
    note_checkpoint(
        services, project_id=project_id, checkpoint_id=bad, text=f"{SCRIPT}\n{FORMULA}", actor=OPERATOR
    )
    return BusyProject(
        project_id=project_id, run=RUN, good=good, older=older, bad=bad, finished=finished, running=running
    )


def _running(services: Services) -> int:
    worker = HOSTILE[:100]
    can = Capabilities(stores=("demo",), devices=(HOSTILE,))
    lease = claim(services, worker=worker, capabilities=can, actor=OPERATOR)
    assert lease is not None
    progress = Progress(
        phase=HOSTILE, bytes_done=1 << 20, bytes_total=4 << 20, files_done=1, files_total=3, file=HOSTILE
    )
    hear(services, key_of(lease), progress=progress, is_draining=False, actor=OPERATOR)
    states = (FileState.FAULTY, FileState.DOUBTED, FileState.NOTED, FileState.READ)
    results = {f"{HOSTILE}/{state}": PackedResult(body=b"", state=state) for state in states}
    with services.database.write() as tx:
        store_file_results(tx, validation_id=lease.validation.id, attempt_id=lease.id, results=results)
    return lease.validation.id


def count_events(services: Services) -> int:
    """Return how many events there are."""
    with services.database.read() as tx:
        number: int = tx.execute(select(func.count()).select_from(events)).scalar_one()
        return number


def events_of(services: Services, checkpoint_id: int, kind: EventKind) -> list[Row[tuple[object, ...]]]:
    """Return the events of one kind about a checkpoint, oldest first."""
    wanted = select(events).where(events.c.checkpoint_id == checkpoint_id, events.c.kind == kind.value)
    with services.database.read() as tx:
        return list(tx.execute(wanted.order_by(events.c.id)).all())

"""Scheduled looks at workers and runs: an event when something changes, and only then."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.schedule import Round
from ckptguard_api.repositories import watching
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.run_overview import checkpoints_by_id

WORKERS_A_ROUND: Final = 200
RUNS_A_ROUND: Final = 200


def watch_workers(tx: Transaction, *, heard_within_s: float) -> Round:
    """Tell once of each silence of a worker, and once of its return.

    Args:
        tx: Of this round.
        heard_within_s: A worker not heard of for longer is silent.
    """
    since = tx.now - timedelta(seconds=heard_within_s)
    returned = watching.mark_returned(tx, heard_since=since, limit=WORKERS_A_ROUND)
    silent = watching.mark_silent(tx, heard_since=since, limit=WORKERS_A_ROUND)
    for worker in returned:
        _tell_of_worker(tx, EventKind.WORKER_RETURNED, worker)
    for worker in silent:
        _tell_of_worker(tx, EventKind.WORKER_SILENT, worker)
    return Round(is_more=WORKERS_A_ROUND in (len(returned), len(silent)))


def watch_runs(tx: Transaction, cursor: int) -> Round:
    """Tell once when the newest checkpoint that a run may resume from becomes older than the run allows.

    A run without any counts from when it was made. When it is protected again it is told of anew the
    next time. One run is changed a round: a transaction that locks several would have to lock them in
    everybody's order.
    """
    found = watching.watched_runs(tx, after_id=cursor, limit=RUNS_A_ROUND)
    newest = checkpoints_by_id(tx, (run.newest_valid_id for run in found))
    for run in found:
        since = _protected_at(run, newest)
        is_late = (tx.now - since).total_seconds() > run.unprotected_after_s
        if is_late == (run.unprotected_told_at is not None):
            continue
        told_at = tx.now if is_late else None
        if watching.set_unprotected(tx, run.id, told_at=told_at) and is_late:
            _tell_of_run(tx, run, since=since)
        return Round(cursor=run.id, is_more=True)
    is_more = len(found) == RUNS_A_ROUND
    return Round(cursor=found[-1].id if is_more else 0, is_more=is_more)


def _protected_at(run: Row[Any], newest: Mapping[int, Row[Any]]) -> datetime:
    at: datetime = run.created_at if run.newest_valid_id is None else newest[run.newest_valid_id].created_at
    return at


def _tell_of_run(tx: Transaction, run: Row[Any], *, since: datetime) -> None:
    data = {
        "unprotected_since": since.isoformat(),
        "unprotected_s": (tx.now - since).total_seconds(),
        "unprotected_after_s": run.unprotected_after_s,
        "has_valid": run.newest_valid_id is not None,
    }
    about = Subject(project_id=run.project_id, run_id=run.id, checkpoint_id=run.newest_valid_id)
    record(tx, EventKind.RUN_UNPROTECTED, actor=SERVICE, about=about, data=data)


def _tell_of_worker(tx: Transaction, kind: EventKind, worker: Row[Any]) -> None:
    data = {"worker": worker.name, "worker_id": worker.id, "seen_at": worker.seen_at.isoformat()}
    record(tx, kind, actor=SERVICE, about=Subject(project_id=worker.project_id), data=data)

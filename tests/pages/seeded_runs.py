"""Runs in every state that an operator should tell apart, and one run with all that can happen to it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import insert, update

from ckptguard.model.service import Lifecycle, RestartOutcome, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.run_policy import RunPolicy
from ckptguard_api.tables import branches, checkpoints, restarts, runs, verdicts
from tests import service_rows as rows
from tests.pages.hostile_names import RUN_NAMES

HOSTILE: Final = (*(name for name in RUN_NAMES if "/" not in name), "=cmd|' !A0'", "+1+1", "@SUM(1)", "-2")
"""`/` is in no name of a run."""
FULL_RUN: Final = "pretrain-7"
POLICY: Final = RunPolicy(gpus=8000, usd_per_gpu_hour=3.0, unprotected_after_s=6 * 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """What was added.

    Args:
        run_ids: By name.
        now: The time that ages count to, about.
        target_id: What `FULL_RUN` would resume from.
        damaged_id: A newer one of `FULL_RUN` that is INVALID with finding `crc_mismatch`.
    """

    run_ids: dict[str, int]
    now: datetime
    target_id: int
    damaged_id: int


def seed_runs(database: Database, *, project_id: int) -> Seeded:
    """Add all of them to a project."""
    with database.write() as tx:
        store = rows.add_store(tx, project_id)
        made = {name: _simple_run(tx, project_id, store, name) for name in _SIMPLE}
        for name in HOSTILE:
            made[name] = _run(tx, project_id, name)
            place: dict[str, Any] = {"path": f"{name}/step-7", "location": f"file:///data/demo/{name}/step-7"}
            rows.add_checkpoint(
                tx, made[name], store, step=7, verdict=Verdict.VALID, save_id=name[:250], **place
            )
        made["empty"] = _run(tx, project_id, "empty")
        made[FULL_RUN] = _run(tx, project_id, FULL_RUN, policy=POLICY, branch=1)
        target, damaged = _full_run(tx, made[FULL_RUN], store)
        return Seeded(run_ids=made, now=tx.now, target_id=target, damaged_id=damaged)


_MINUTE: Final = timedelta(minutes=1)
# Newest last: minutes ago, then what `add_checkpoint` takes.
_SIMPLE: Final[dict[str, list[tuple[float, dict[str, Any]]]]] = {
    "healthy": [(age, {"verdict": Verdict.VALID}) for age in range(400, 0, -8)],
    "restarts-fail": [(30, {"verdict": Verdict.VALID}), (20, {"verdict": Verdict.VALID})],
    "never-valid": [(30, {"verdict": Verdict.UNKNOWN}), (20, {"verdict": Verdict.INVALID})],
    "below-policy": [(30, {"verdict": Verdict.VALID, "assurance": Assurance.CONTENT})],
    "newest-damaged": [(30, {"verdict": Verdict.VALID}), (20, {"verdict": Verdict.INVALID})],
    "unprotected": [(900, {"verdict": Verdict.VALID}), (5, {})],
    "held-back": [(30, {"verdict": Verdict.VALID}), (20, {"verdict": Verdict.VALID, "is_suspect": True})],
    "stays-unknown": [(30, {"verdict": Verdict.VALID}), (20, {"verdict": Verdict.UNKNOWN})],
    "never-came": [(30, {"verdict": Verdict.VALID}), (20, {"lifecycle": Lifecycle.INCOMPLETE})],
    "waits-long": [(300, {"verdict": Verdict.VALID}), (200, {"state": ValidationState.QUEUED})],
    "went-back": [(30, {"verdict": Verdict.VALID})],
    "being-validated": [(30, {"verdict": Verdict.VALID}), (2, {"state": ValidationState.RUNNING})],
    "being-saved": [(30, {"verdict": Verdict.VALID}), (0, {"lifecycle": Lifecycle.ANNOUNCED})],
    "over": [(60 * 24 * 30, {"verdict": Verdict.INVALID})],
}


def _run(tx: Transaction, project_id: int, name: str, **columns: Any) -> int:  # noqa: ANN401 - columns
    return rows.add_run(tx, project_id, name, columns.pop("policy", None), **columns)


def _simple_run(tx: Transaction, project_id: int, store: int, name: str) -> int:
    saves = _SIMPLE[name]
    made_at = tx.now - saves[0][0] * _MINUTE
    limit = 3600.0 * 6 if name == "unprotected" else None
    run_id = _run(tx, project_id, name, policy=RunPolicy(unprotected_after_s=limit), created_at=made_at)
    for number, (age, columns) in enumerate(saves, start=1):
        _save(tx, run_id, store, step=100 * number, at=tx.now - age * _MINUTE, **columns)
    flag = {"restarts-fail": "restarts_failing_at", "went-back": "step_went_back_at"}.get(name)
    if flag is not None:
        tx.execute(update(runs).where(runs.c.id == run_id).values({flag: tx.now - 10 * _MINUTE}))
    return run_id


def _save(
    tx: Transaction,
    run_id: int,
    store: int,
    *,
    step: int,
    at: datetime,
    state: ValidationState | None = None,
    **columns: Any,  # noqa: ANN401 - columns
) -> int:
    complete = columns.get("lifecycle", Lifecycle.REGISTERED) not in {
        Lifecycle.ANNOUNCED,
        Lifecycle.INCOMPLETE,
    }
    saved = rows.add_checkpoint(
        tx, run_id, store, step=step, created_at=at, registered_at=at if complete else None, **columns
    )
    if state is not None:
        rows.add_validation(tx, saved, state=state)
    if columns.get("verdict") is not None:
        given = at + timedelta(seconds=60 + step % 700)
        moments = {"validated_at": given, "first_verdict_at": given}
        tx.execute(update(checkpoints).where(checkpoints.c.id == saved).values(moments))
        row = tx.execute(checkpoints.select().where(checkpoints.c.id == saved)).one()
        one = verdicts.c.validation_id == row.verdict_validation_id
        values = {"given_at": given, "bytes_read": 640_000_000_000, "seconds_reading": 40.0 + step % 70}
        tx.execute(update(verdicts).where(one).values(values))
    return saved


def _full_run(tx: Transaction, run_id: int, store: int) -> tuple[int, int]:
    start = tx.now - timedelta(hours=14)

    def at(step: int) -> datetime:
        return start + timedelta(minutes=step / 10)

    saved = {}
    for step in range(100, 4600, 100):
        verdict = {1700: Verdict.INVALID, 2300: Verdict.UNKNOWN}.get(step, Verdict.VALID)
        level = Assurance.CONTENT if step % 1000 == 0 else Assurance.LOADED
        lifecycle = Lifecycle.SUPERSEDED if step > 3000 else Lifecycle.REGISTERED
        by = "rolled_back" if step > 3000 else None
        saved[step] = _save(
            tx, run_id, store, step=step, at=at(step), verdict=verdict, assurance=level,
            lifecycle=lifecycle, superseded_by=by,
        )  # fmt: skip
    values = {"run_id": run_id, "number": 1, "from_checkpoint_id": saved[3000], "from_step": 3000}
    tx.execute(insert(branches).values(values | {"opened_at": at(4600), "opened_by": "launcher"}))
    later = timedelta(minutes=170)
    target = 0
    for step in range(3100, 5000, 100):
        target = _save(tx, run_id, store, step=step, at=at(step) + later, verdict=Verdict.VALID, branch=1)
    held: dict[str, Any] = {"verdict": Verdict.VALID, "branch": 1, "is_quarantined": True}
    _save(tx, run_id, store, step=5000, at=at(5000) + later, **held)
    damaged = _save(tx, run_id, store, step=5100, at=at(5100) + later, verdict=Verdict.INVALID, branch=1)
    row = tx.execute(checkpoints.select().where(checkpoints.c.id == damaged)).one()
    rows.add_finding(tx, row.verdict_validation_id, message="record data/0 has another CRC-32")
    _save(tx, run_id, store, step=5150, at=at(5150) + later, branch=1, lifecycle=Lifecycle.INCOMPLETE)
    _save(tx, run_id, store, step=5200, at=at(5200) + later, branch=1, state=ValidationState.RUNNING)
    _save(tx, run_id, store, step=5300, at=at(5300) + later, branch=1, state=ValidationState.QUEUED)
    _restarts(tx, run_id, saved, at(4600))
    return target, damaged


def _restarts(tx: Transaction, run_id: int, saved: dict[int, int], at: datetime) -> None:
    told = (
        ("start-1", RestartOutcome.RESUMED, 3000, 0, None),
        ("start-1", RestartOutcome.FAILED_LOADING, 3000, 3, "CUDA error: <b>out of memory</b>"),
        ("start-2", RestartOutcome.RESUMED, 3000, 10, None),
        ("start-2", RestartOutcome.PROGRESSED, 3000, 40, None),
    )
    for attempt, outcome, step, minutes, detail in told:
        values = {
            "run_id": run_id, "checkpoint_id": saved[step], "attempt_key": attempt, "outcome": outcome.value,
            "nodes": ["node-1", "node-2"], "steps_done": 25 if outcome is RestartOutcome.PROGRESSED else None,
            "detail": detail, "reported_at": at + minutes * _MINUTE, "branch": 1,
            "is_branch_opened": minutes == 0, "is_settled": True,
        }  # fmt: skip
        tx.execute(insert(restarts).values(values))

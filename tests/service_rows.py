"""Rows of the service for tests that need a past, written straight into the tables.

Each function adds one row, with defaults for all that the test does not care about, and returns its id.
What use cases promise is not held here: a test of a use case makes its rows with use cases.
"""

import itertools
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Table, func, insert, select, update

from ckptguard.model.service import Lifecycle, ValidationReason, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.run_policy import RunPolicy, policy_values
from ckptguard_api.tables import (
    branches,
    check_results,
    checkpoints,
    findings,
    parts,
    projects,
    runs,
    stores,
    validations,
    verdicts,
    workers,
)

_NUMBERS: Final = itertools.count(1)
STEP: Final = timedelta(minutes=1)
"""Time between two checkpoints of following steps, unless the test says otherwise."""


def _add(tx: Transaction, table: Table, **values: Any) -> int:  # noqa: ANN401 - columns
    row_id: int = tx.execute(
        insert(table).values(values).returning(table.primary_key.columns[0])
    ).scalar_one()
    return row_id


def add_project(tx: Transaction, name: str = "default") -> int:
    """Add a project."""
    return _add(tx, projects, name=name, allowed_globals=[], created_at=tx.now)


def add_store(tx: Transaction, project_id: int, name: str = "demo", url: str = "file:///data/demo") -> int:
    """Add a store."""
    values = {"times": "original", "settle_s": 30.0, "mtime_tolerance_s": 5.0}
    return _add(tx, stores, project_id=project_id, name=name, url=url, created_at=tx.now, **values)


def add_run(
    tx: Transaction,
    project_id: int,
    name: str = "run-7",
    policy: RunPolicy | None = None,
    **columns: Any,  # noqa: ANN401 - columns
) -> int:
    """Add a run at branch 0, opened from nothing."""
    values = (
        policy_values(policy or RunPolicy()) | {"revision": 1, "branch": 0, "created_at": tx.now} | columns
    )
    run_id = _add(tx, runs, project_id=project_id, name=name, **values)
    _add(tx, branches, run_id=run_id, number=0, opened_at=tx.now, opened_by="test")
    return run_id


def add_checkpoint(  # noqa: PLR0913 - what tests care about, by name
    tx: Transaction,
    run_id: int,
    store_id: int,
    *,
    step: int,
    verdict: Verdict | None = None,
    assurance: Assurance = Assurance.LOADED,
    branch: int = 0,
    created_at: datetime | None = None,
    lifecycle: Lifecycle = Lifecycle.REGISTERED,
    **columns: Any,  # noqa: ANN401 - columns
) -> int:
    """Add a checkpoint of one part, with a finished validation where it has a verdict."""
    number = next(_NUMBERS)
    project_id: int = tx.execute(select(runs.c.project_id).where(runs.c.id == run_id)).scalar_one()
    values = {
        "save_id": f"save-{number}",
        "path": f"run/step-{step}-{number}",
        "location": f"file:///data/demo/run/step-{step}-{number}",
        "created_at": created_at or tx.now,
        "registered_at": None if lifecycle is Lifecycle.ANNOUNCED else tx.now,
        "format": "dcp",
        "num_files": 3,
        "bytes_total": 4096,
        "expected_parts": [""],
        "is_pinned": False,
        "is_quarantined": False,
        "is_suspect": False,
        "lifecycle": lifecycle.value,
    }
    keys = {"project_id": project_id, "run_id": run_id, "store_id": store_id, "branch": branch, "step": step}
    checkpoint_id = _add(tx, checkpoints, **(keys | values | columns))
    _add(tx, parts, checkpoint_id=checkpoint_id, name="", registered_by="test", is_from_writer=False,
         registered_at=tx.now)  # fmt: skip
    if verdict is not None:
        add_verdict(tx, checkpoint_id, verdict, assurance=assurance)
    return checkpoint_id


def add_validation(
    tx: Transaction,
    checkpoint_id: int,
    *,
    state: ValidationState = ValidationState.QUEUED,
    **columns: Any,  # noqa: ANN401 - columns
) -> int:
    """Add a validation; an open one is shown by its checkpoint."""
    row = tx.execute(select(checkpoints).where(checkpoints.c.id == checkpoint_id)).one()
    is_open = state in {ValidationState.QUEUED, ValidationState.RUNNING}
    values = {name: getattr(row, name) for name in ("project_id", "run_id", "store_id", "branch", "step")}
    values |= {
        "checkpoint_id": checkpoint_id,
        "reason": ValidationReason.REGISTERED.value,
        "depth": "load",
        "requested_by": "test",
        "requested_at": tx.now,
        "state": state.value,
        "tier": 1,
        "attempts": 0,
        "counted_attempts": 0,
        "finished_at": None if is_open else tx.now,
    }
    if is_open:
        shown = update(checkpoints).where(checkpoints.c.id == checkpoint_id)
        tx.execute(shown.values(validation_state=state.value))
    return _add(tx, validations, **(values | columns))


def add_verdict(
    tx: Transaction, checkpoint_id: int, verdict: Verdict, *, assurance: Assurance = Assurance.LOADED
) -> int:
    """Add a finished validation whose verdict is in force, and return the validation's id."""
    validation_id = add_validation(tx, checkpoint_id, state=ValidationState.FINISHED)
    judged = {
        "verdict": verdict.value,
        "basis": "damage" if verdict is Verdict.INVALID else None,
        "assurance": assurance.value if verdict is Verdict.VALID else None,
        "provenance": "unproven",
        "device": "cpu",
    }
    measured = {"seconds": 2.0, "seconds_reading": 1.0, "bytes_total": 4096, "bytes_read": 4096}
    identity = {"bytes_identity": "sha256:" + "0" * 64, "versions": {"checks": "1"}, "totals": {"shards": 2}}
    flags = {"is_retryable": False, "is_in_force": True, "format": "dcp", "given_at": tx.now}
    _add(tx, verdicts, validation_id=validation_id, **judged, **measured, **identity, **flags)
    shown = judged | {"verdict_validation_id": validation_id, "validated_at": tx.now}
    shown["first_verdict_at"] = func.coalesce(checkpoints.c.first_verdict_at, tx.now)
    tx.execute(update(checkpoints).where(checkpoints.c.id == checkpoint_id).values(shown))
    return validation_id


def add_check(tx: Transaction, validation_id: int, name: str, status: str = "pass") -> int:
    """Add how one check ended."""
    values = {"reason": "", "counts": {}, "seconds": 0.5, "bytes_read": 0}
    return _add(tx, check_results, validation_id=validation_id, name=name, status=status, **values)


def add_finding(
    tx: Transaction,
    validation_id: int,
    *,
    code: str = "crc_mismatch",
    message: str = "wrong bytes",
    number: int | None = None,
) -> int:
    """Add an error finding about `__0_0.distcp`, after those that are there."""
    if number is None:
        taken = select(func.count()).where(findings.c.validation_id == validation_id)
        number = tx.execute(taken).scalar_one()
    place = {"check": "content", "severity": "error", "file": "__0_0.distcp", "fqn": "w"}
    value = {"code": code, "message": message, "offset": 12} | place
    columns = place | {"code": code, "message": message, "value": value, "is_about_checkpoint": True}
    return _add(tx, findings, validation_id=validation_id, number=number, **columns)


def add_worker(tx: Transaction, name: str = "canary-1", **columns: Any) -> int:  # noqa: ANN401 - columns
    """Add a worker that was just heard from."""
    values = {"capabilities": {"stores": ["demo"]}, "first_seen_at": tx.now, "seen_at": tx.now}
    return _add(tx, workers, name=name, **(values | {"is_draining": False} | columns))

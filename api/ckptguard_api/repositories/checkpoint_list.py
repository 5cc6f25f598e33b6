"""Checkpoints as operators see them: one, or a page of them, with the names of their run and store."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, exists, select, text

from ckptguard.errors import NotFoundError
from ckptguard.model.finding import FindingCode
from ckptguard.model.service import Hold
from ckptguard_api.database import Transaction
from ckptguard_api.domain.checkpoint_filter import NO_VERDICT, CheckpointFilter
from ckptguard_api.domain.paging import KeyValue, Query
from ckptguard_api.repositories.windows import Listing
from ckptguard_api.tables import checkpoints, findings, runs, stores

CheckpointRow = Row[Any]
"""All columns of `checkpoints`, and `run` and `store`, the names."""

HOLD_COLUMNS: Final = {
    Hold.PINNED: "is_pinned",
    Hold.QUARANTINED: "is_quarantined",
    Hold.SUSPECT: "is_suspect",
}
_INDEXED: Final = ("hold", "state", "verdict", "assurance", "lifecycle")
"""Filters of which a project has an order each; fewest rows first."""
_PROJECT_ORDER: Final[dict[str, type[KeyValue]]] = {"created_at": datetime, "id": int}
_RUN_ORDER: Final[dict[str, type[KeyValue]]] = {"branch": int, "step": int, "created_at": datetime, "id": int}


def find_checkpoint(tx: Transaction, project_id: int, checkpoint_id: int) -> CheckpointRow:
    """Return a checkpoint of this project.

    Raises:
        NotFoundError: There is none; one of another project is none.
    """
    named = _named().where(checkpoints.c.id == checkpoint_id, checkpoints.c.project_id == project_id)
    row = tx.execute(named).one_or_none()
    if row is None:
        msg = "no such checkpoint"
        raise NotFoundError(msg)
    return row


def checkpoint_listing(project_id: int, run_id: int | None, wanted: CheckpointFilter) -> Listing:
    """Return the list of the checkpoints that pass a filter.

    Args:
        project_id: Only of this one.
        run_id: Of the run that the filter names.
        wanted: The filter.
    """
    conditions = _conditions(wanted)
    if run_id is None:
        served = [*[name for name in _INDEXED if name in conditions][:1], "newer_than", "older_than"]
        scope, order = checkpoints.c.project_id == project_id, _PROJECT_ORDER
    else:
        served = ["step", "verdict"]
        scope, order = checkpoints.c.run_id == run_id, _RUN_ORDER
    literal = [text(HOLD_COLUMNS[wanted.hold])] if wanted.hold is not None and "hold" in served else []
    return Listing(
        query=Query(name=f"checkpoints/{project_id}", filters=wanted.to_json(), kinds=tuple(order.values())),
        rows=_named(),
        # A partial index serves only a query that repeats its condition literally.
        served=[scope, *literal, *(conditions[name] for name in served if name in conditions)],
        rest=[condition for name, condition in conditions.items() if name not in served],
        order=[checkpoints.c[name] for name in order],
        is_few=run_id is not None and wanted.step is not None,
    )


def _conditions(wanted: CheckpointFilter) -> dict[str, ColumnElement[bool]]:
    columns = checkpoints.c
    found: dict[str, ColumnElement[bool]] = {}
    if wanted.hold is not None:
        found["hold"] = columns[HOLD_COLUMNS[wanted.hold]]
    if wanted.state is not None:
        found["state"] = columns.validation_state == wanted.state.value
    if wanted.verdict is not None:
        is_none = wanted.verdict == NO_VERDICT
        found["verdict"] = columns.verdict.is_(None) if is_none else columns.verdict == str(wanted.verdict)
    if wanted.assurance is not None:
        found["assurance"] = columns.assurance == wanted.assurance.value
    if wanted.lifecycle is not None:
        found["lifecycle"] = columns.lifecycle == wanted.lifecycle.value
    if wanted.code is not None:
        found["code"] = _has_finding(wanted.code)
    return found | _ranges(wanted)


def _has_finding(code: FindingCode) -> ColumnElement[bool]:
    # One look-up a candidate, in the index of codes: a validation may have very many findings.
    return exists().where(
        findings.c.code == code.value,
        findings.c.validation_id == checkpoints.c.verdict_validation_id,
        findings.c.is_about_checkpoint,
    )


def _ranges(wanted: CheckpointFilter) -> dict[str, ColumnElement[bool]]:
    step, created_at = checkpoints.c.step, checkpoints.c.created_at
    ranges = {
        "step": None if wanted.step is None else step == wanted.step,
        "min_step": None if wanted.min_step is None else step >= wanted.min_step,
        "max_step": None if wanted.max_step is None else step <= wanted.max_step,
        "newer_than": None if wanted.newer_than is None else created_at > wanted.newer_than,
        "older_than": None if wanted.older_than is None else created_at < wanted.older_than,
    }
    return {name: condition for name, condition in ranges.items() if condition is not None}


def _named() -> Select[Any]:
    # Outer joins: there is always a run and a store, and SQLite then never begins with them.
    return (
        select(*checkpoints.c, runs.c.name.label("run"), stores.c.name.label("store"))
        .outerjoin(runs, runs.c.id == checkpoints.c.run_id)
        .outerjoin(stores, stores.c.id == checkpoints.c.store_id)
    )

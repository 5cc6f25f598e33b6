"""What happened to one run: its checkpoints as a timeline, its branches, its starts; each with a bound."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, func, select

from ckptguard_api.database import Transaction
from ckptguard_api.repositories.epochs import EpochS
from ckptguard_api.repositories.run_overview import NEWEST_FIRST
from ckptguard_api.tables import branches, checkpoints, restarts, verdicts

MAX_TIMELINE: Final = 10_000
"""Checkpoints of a timeline: the newest by the run's order."""
MAX_COUNTED: Final = 20_000
MAX_REPORTS: Final = 1000
"""Reports of starts that are looked at: the last ones."""
MAX_BRANCHES: Final = 200

_TIMELINE: Final = (
    select(
        checkpoints.c.id,
        checkpoints.c.branch,
        checkpoints.c.step,
        EpochS(checkpoints.c.created_at).label("created_s"),
        checkpoints.c.lifecycle,
        checkpoints.c.verdict,
        checkpoints.c.assurance,
        checkpoints.c.validation_state,
        checkpoints.c.is_quarantined,
        checkpoints.c.is_suspect,
        verdicts.c.bytes_read,
        verdicts.c.seconds_reading,
        EpochS(checkpoints.c.first_verdict_at).label("first_verdict_s"),
    )
    .select_from(
        checkpoints.outerjoin(verdicts, verdicts.c.validation_id == checkpoints.c.verdict_validation_id)
    )
    .order_by(*NEWEST_FIRST)
)
TIMELINE_COLUMNS: Final = tuple(str(column.key) for column in _TIMELINE.selected_columns)
"""Names of what `timeline_rows` returns, in order."""


def timeline_rows(tx: Transaction, run_id: int) -> Sequence[Row[Any]]:
    """Return the newest checkpoints of a run, newest first: one more than `MAX_TIMELINE` at most.

    Returns:
        What a mark is made of, `created_s` in seconds since 1970, `bytes_read` and `seconds_reading` of the
        verdict in force, and `first_verdict_s`, when there was a first one; None: there is none.
    """
    statement = _TIMELINE.where(checkpoints.c.run_id == run_id).limit(MAX_TIMELINE + 1)
    return tx.execute(statement).all()


def count_kinds(tx: Transaction, run_id: int) -> Sequence[Row[Any]]:
    """Count the checkpoints of a run, `MAX_COUNTED` at most: rows that `tally` adds up.

    Cost: one index entry a checkpoint that is counted.
    """
    kinds = (checkpoints.c.lifecycle, checkpoints.c.verdict)
    some = select(*kinds).where(checkpoints.c.run_id == run_id).limit(MAX_COUNTED).subquery()
    query = select(some.c.lifecycle, some.c.verdict, func.count().label("checkpoints"))
    return tx.execute(query.group_by(some.c.lifecycle, some.c.verdict)).all()


def branch_rows(tx: Transaction, run_id: int) -> Sequence[Row[Any]]:
    """Return the branches of a run, the last first."""
    query = select(branches).where(branches.c.run_id == run_id).order_by(branches.c.number.desc())
    return tx.execute(query.limit(MAX_BRANCHES)).all()


def start_rows(tx: Transaction, run_id: int) -> Sequence[Row[Any]]:
    """Return the last reports of starts with `step`, of the checkpoint they came from; the last first."""
    query = (
        select(restarts, checkpoints.c.step)
        .outerjoin(checkpoints, checkpoints.c.id == restarts.c.checkpoint_id)
        .where(restarts.c.run_id == run_id)
        .order_by(restarts.c.id.desc())
        .limit(MAX_REPORTS)
    )
    return tx.execute(query).all()

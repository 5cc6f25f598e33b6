"""Answer the launcher: which checkpoint of a run may be resumed from?"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.model.service import ResumeState, ValidationState
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.resume import Asked, Candidate, Choice, HeardWorker, Progress, Question, WaitedFor
from ckptguard_api.domain.resume_choice import changes_at, choose
from ckptguard_api.repositories.resume import MAX_PASSED_OVER, Narrowed, narrow, to_candidate
from ckptguard_api.repositories.resume_details import (
    mark_waited_for,
    read_details,
    read_heard_workers,
    read_progress,
    read_stores,
)
from ckptguard_api.repositories.runs import find_run

PROGRESS_FRESH_S: Final = 10.0
"""How old the progress of a running validation may be in an answer; nothing else in it ever is.

The time between two heartbeats.
"""
PROGRESS_RENEWED_S: Final = 5.0
"""From this age on it is read again, while those who ask get the answer as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAnswer:
    """A choice, and what a launcher is told about it.

    Args:
        run: Name, as asked.
        index: Revision of the run that this was read at; 0 where there is none.
        asked: With the run's policy filled in.
        choice: State, target and what was passed over, of which the newest are named.
        newer_total: All that were passed over.
        left_total: Newer ones that are superseded or deleted, which are not among them.
        rows: Columns of `checkpoints` by id.
        stores: Columns of `stores` by id.
        details: By validation id.
        progress: By validation id.
        waited_for: Open validations that may give a newer target, newest first.
        fresh_for_s: Seconds after which time alone may have changed it; None: never.
        renew_after_s: Seconds after which it is better read again, though it still holds; None: never.
    """

    run: str
    index: int
    asked: Asked
    choice: Choice
    newer_total: int = 0
    left_total: int = 0
    rows: Mapping[int, Row[Any]] = field(default_factory=dict)
    stores: Mapping[int, Row[Any]] = field(default_factory=dict)
    details: Mapping[int, str] = field(default_factory=dict)
    progress: Mapping[int, Progress] = field(default_factory=dict)
    waited_for: tuple[WaitedFor, ...] = ()
    fresh_for_s: float | None = None
    renew_after_s: float | None = None


def answer_resume_target(
    database: Database, *, project_id: int, run: str, question: Question
) -> ResumeAnswer:
    """Read everything of one moment, and choose.

    Raises:
        ServiceUnavailableError: The database gave no answer.
    """
    with database.read() as tx:
        row = find_run(tx, project_id, run)
        if row is None:
            return unknown_run(run, question)
        asked = Asked.of(
            question,
            min_assurance=Assurance(row.min_assurance),
            min_provenance=None if row.min_provenance is None else Provenance(row.min_provenance),
        )
        narrowed = narrow(tx, row, asked)
        candidates = [asked.as_seen(to_candidate(one)) for one in narrowed.rows]
        choice = choose(candidates, asked, now=tx.now)
        return _describe(tx, row, asked, choice, narrowed, candidates)


def hear_workers(database: Database, *, within_s: float) -> list[HeardWorker]:
    """Return the workers that may do what launchers wait for."""
    with database.read() as tx:
        return read_heard_workers(tx, within_s=within_s)


def wait_for_validations(database: Database, validation_ids: Collection[int], *, for_s: float) -> None:
    """Move validations to the front of the queue for so long."""
    with database.write() as tx:
        mark_waited_for(tx, validation_ids, until=tx.now + timedelta(seconds=for_s))


def unknown_run(run: str, question: Question) -> ResumeAnswer:
    """Return the answer where there is no such run."""
    asked = Asked.of(question, min_assurance=Assurance.LOADED, min_provenance=None)
    return ResumeAnswer(run=run, index=0, asked=asked, choice=Choice(state=ResumeState.UNKNOWN_RUN))


def _describe(
    tx: Transaction,
    run: Row[Any],
    asked: Asked,
    choice: Choice,
    narrowed: Narrowed,
    candidates: list[Candidate],
) -> ResumeAnswer:
    rows = {row.id: row for row in narrowed.rows}
    named = [rows[passed.candidate.id] for passed in choice.passed_over[:MAX_PASSED_OVER]]
    chosen = [rows[one.id] for one in (choice.target, choice.below) if one is not None]
    is_running = any(row.validation_state == ValidationState.RUNNING.value for row in named)
    return ResumeAnswer(
        run=run.name,
        index=run.revision,
        asked=asked,
        choice=choice,
        newer_total=narrowed.newer_total,
        left_total=narrowed.left_total,
        rows=rows,
        stores=read_stores(tx, {row.store_id for row in chosen}),
        details=read_details(tx, _decided_against(named)),
        progress=read_progress(tx, [row.open_id for row in named if row.open_id]) if is_running else {},
        waited_for=narrowed.waited_for,
        fresh_for_s=_fresh_for_s(tx.now, changes_at(candidates, asked, now=tx.now), is_running=is_running),
        renew_after_s=PROGRESS_RENEWED_S if is_running else None,
    )


def _decided_against(named: list[Row[Any]]) -> list[int]:
    return [row.verdict_validation_id for row in named if row.verdict in (Verdict.INVALID, Verdict.UNKNOWN)]


def _fresh_for_s(now: datetime, ends_at: datetime | None, *, is_running: bool) -> float | None:
    ends = [PROGRESS_FRESH_S] if is_running else []
    if ends_at is not None:
        ends.append((ends_at - now).total_seconds())
    return min(ends, default=None)

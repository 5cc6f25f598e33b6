"""What launchers tell about starts of a run: it goes on from a checkpoint, fails, or gets going again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, update

from ckptguard.errors import ConflictError, InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind, Hold, RestartOutcome
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.restart_judgement import (
    Failure,
    RestartJudgement,
    counts_against,
    judge_restarts,
)
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories import branches, restarts
from ckptguard_api.repositories.events import record_facts
from ckptguard_api.repositories.run_overview import checkpoints_by_id, has_older_usable
from ckptguard_api.repositories.runs import RunRow, find_run, lock_run, touch_run
from ckptguard_api.services import Services
from ckptguard_api.tables import checkpoints, runs
from ckptguard_api.use_cases.rollback import continue_from, rewind


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAnswer:
    """What came of a report.

    Args:
        branch: The run's, after it.
        opened: This start opened it.
        is_new: It was not told before.
    """

    branch: int
    opened: bool
    is_new: bool


@dataclass(slots=True, kw_only=True)
class _Telling:
    """One report while it is worked in."""

    tx: Transaction
    run: RunRow
    report: RestartReport
    checkpoint: Row[Any] | None
    actor: Actor

    def fact(self, kind: EventKind, **data: Any) -> Fact:  # noqa: ANN401 - JSON values
        checkpoint_id = None if self.checkpoint is None else self.checkpoint.id
        return Fact(kind=kind, about=(self.about(checkpoint_id),), data=data)

    def about(self, checkpoint_id: int | None) -> Subject:
        return Subject(project_id=self.run.project_id, run_id=self.run.id, checkpoint_id=checkpoint_id)


def report_restart(
    services: Services, *, project_id: int, run_name: str, report: RestartReport, actor: Actor
) -> RestartAnswer:
    """Take in what became of one start; told twice, it counts once.

    Raises:
        NotFoundError: No such run, or the run has no such checkpoint.
        ConflictError: The same start was told otherwise before; or a run that has checkpoints would start
            from nothing, or one would start from bytes that are not there.
        InvalidRequestError: A fresh start despite checkpoints does not repeat the name of the run.
    """
    with services.database.write() as tx:
        found = find_run(tx, project_id, run_name)
        if found is None:
            msg = "no such run"
            raise NotFoundError(msg)
        run = lock_run(tx, found.id)
        telling = _Telling(
            tx=tx, run=run, report=report, checkpoint=_checkpoint_of(tx, run, report), actor=actor
        )
        told = restarts.find_restart(tx, run.id, report.attempt, report.outcome)
        if told is not None:
            return _told_before(told, telling)
        if report.outcome is RestartOutcome.RESUMED:
            return _resumed(telling)
        return _ended(telling)


def _checkpoint_of(tx: Transaction, run: RunRow, report: RestartReport) -> Row[Any] | None:
    resumed = restarts.find_restart(tx, run.id, report.attempt, RestartOutcome.RESUMED)
    told = None if resumed is None else resumed.checkpoint_id
    wanted = told if report.checkpoint_id is None and not report.is_fresh_despite else report.checkpoint_id
    if resumed is not None and report.outcome is not RestartOutcome.RESUMED and wanted != told:
        msg = f"start {report.attempt!r} was told to come from checkpoint {told}, not {wanted}"
        raise ConflictError(msg)
    if wanted is None:
        return None
    row = checkpoints_by_id(tx, [wanted]).get(wanted)
    if row is None or row.run_id != run.id:
        msg = "the run has no such checkpoint"
        raise NotFoundError(msg)
    return row


def _told_before(told: Row[Any], telling: _Telling) -> RestartAnswer:
    checkpoint_id = None if telling.checkpoint is None else telling.checkpoint.id
    if told.checkpoint_id != checkpoint_id:
        msg = f"start {told.attempt_key!r} was told with checkpoint {told.checkpoint_id} before"
        raise ConflictError(msg)
    return RestartAnswer(branch=told.branch, opened=told.is_branch_opened, is_new=False)


def _resumed(telling: _Telling) -> RestartAnswer:
    tx, run, report = telling.tx, telling.run, telling.report
    _require_leave_to_start_fresh(telling)
    continuation = continue_from(tx, run, telling.checkpoint, actor=telling.actor)
    _keep(telling, branch=continuation.branch, is_branch_opened=continuation.is_opened)
    facts = [*continuation.facts]
    if report.is_fresh_despite:
        restarts.settle_failures(tx, run.id)
        facts.append(telling.fact(EventKind.RUN_FRESH_START, attempt=report.attempt, detail=report.detail))
    _finish(telling, facts)
    return RestartAnswer(branch=continuation.branch, opened=continuation.is_opened, is_new=True)


def _require_leave_to_start_fresh(telling: _Telling) -> None:
    report, name = telling.report, telling.run.name
    if report.is_fresh_despite:
        if report.repeated_run != name:
            msg = "a start from nothing despite checkpoints needs the name of the run, once more"
            raise InvalidRequestError(msg, problems=[f"/run: not {name!r}"])
        return
    if telling.checkpoint is None and branches.live_checkpoints(telling.tx, telling.run.id, limit=1):
        msg = f"run {name!r} has checkpoints; a start from nothing needs `is_fresh_despite`"
        raise ConflictError(msg)


def _ended(telling: _Telling) -> RestartAnswer:
    run, report = telling.run, telling.report
    is_against = counts_against(report.outcome, report.steps_done, min_steps=run.min_steps)
    is_open = is_against and telling.checkpoint is not None and not _has_progressed(telling)
    _keep(telling, branch=run.branch, is_branch_opened=False, is_settled=not is_open)
    facts: list[Fact] = []
    if report.outcome is RestartOutcome.PROGRESSED:
        facts = _progressed(telling)
    elif is_open:
        facts = _failed(telling)
    _finish(telling, facts)
    return RestartAnswer(branch=run.branch, opened=False, is_new=True)


def _has_progressed(telling: _Telling) -> bool:
    """Say whether the same start went well before: who tells of its end may not know how far it came."""
    attempt = telling.report.attempt
    return restarts.find_restart(telling.tx, telling.run.id, attempt, RestartOutcome.PROGRESSED) is not None


def _progressed(telling: _Telling) -> list[Fact]:
    tx, run, checkpoint = telling.tx, telling.run, telling.checkpoint
    restarts.settle_failures(tx, run.id)
    tx.execute(update(runs).where(runs.c.id == run.id).values(restarts_failing_at=None))
    if checkpoint is None or not checkpoint.is_suspect:
        return []
    return _clear(telling, [checkpoint.id], why="the run made progress from it")


def _failed(telling: _Telling) -> list[Fact]:
    judgement = _judge(telling)
    if judgement.suspect is not None:
        _set_suspect(telling.tx, [judgement.suspect], is_suspect=True)
        reason = "starts from it keep failing, on nodes that have nothing in common"
        return [telling.fact(EventKind.CHECKPOINT_HELD, hold=Hold.SUSPECT.value, reason=reason)]
    if not judgement.is_failing:
        return []
    changes = {"restarts_failing_at": telling.tx.now}
    telling.tx.execute(update(runs).where(runs.c.id == telling.run.id).values(changes))
    cleared = sorted(judgement.cleared)
    facts = _clear(telling, cleared, why="starts from an older one fail as well")
    facts += _back_to(telling, cleared)
    return [*facts, telling.fact(EventKind.RUN_RESTARTS_FAILING, cleared=cleared)]


def _judge(telling: _Telling) -> RestartJudgement:
    tx, run = telling.tx, telling.run
    rows = restarts.open_failures(tx, run.id)
    known = checkpoints_by_id(tx, {row.checkpoint_id for row in rows})
    return judge_restarts(
        [_failure(row) for row in rows],
        suspects={row.id for row in known.values() if row.is_suspect},
        order={row.id: (row.branch, row.step, row.created_at, row.id) for row in known.values()},
        can_step_back=has_older_usable(tx, run, known[rows[-1].checkpoint_id]),
        is_failing=run.restarts_failing_at is not None,
    )


def _failure(row: Row[Any]) -> Failure:
    return Failure(checkpoint_id=row.checkpoint_id, attempt=row.attempt_key, nodes=frozenset(row.nodes))


def _back_to(telling: _Telling, cleared: Sequence[int]) -> list[Fact]:
    """Make a cleared checkpoint the newest again, unless something was saved since the step back."""
    tx, run = telling.tx, telling.run
    if not cleared or not branches.is_empty(tx, run.id, run.branch):
        return []
    rows = checkpoints_by_id(tx, cleared).values()
    newest = max(rows, key=lambda row: (row.branch, row.step, row.created_at, row.id))
    return [*rewind(tx, run, newest)]


def _clear(telling: _Telling, checkpoint_ids: Sequence[int], *, why: str) -> list[Fact]:
    _set_suspect(telling.tx, checkpoint_ids, is_suspect=False)
    about = tuple(telling.about(checkpoint_id) for checkpoint_id in checkpoint_ids)
    data = {"holds": [Hold.SUSPECT.value], "reason": why}
    return [Fact(kind=EventKind.CHECKPOINT_RELEASED, about=about, data=data)]


def _set_suspect(tx: Transaction, checkpoint_ids: Sequence[int], *, is_suspect: bool) -> None:
    changed = update(checkpoints).where(checkpoints.c.id.in_(checkpoint_ids))
    tx.execute(changed.values(is_suspect=is_suspect))


def _keep(telling: _Telling, *, branch: int, is_branch_opened: bool, is_settled: bool = True) -> None:
    checkpoint = telling.checkpoint
    restarts.add_restart(
        telling.tx,
        telling.report,
        run_id=telling.run.id,
        checkpoint_id=None if checkpoint is None else checkpoint.id,
        branch=branch,
        is_branch_opened=is_branch_opened,
        is_settled=is_settled,
    )


def _finish(telling: _Telling, facts: Sequence[Fact]) -> None:
    report = telling.report
    touch_run(telling.tx, telling.run.id)
    told = telling.fact(
        EventKind.RUN_RESTARTED,
        attempt=report.attempt,
        outcome=report.outcome.value,
        nodes=len(set(report.nodes)),
        steps_done=report.steps_done,
        detail=report.detail,
    )
    record_facts(telling.tx, [told, *facts], actor=telling.actor)

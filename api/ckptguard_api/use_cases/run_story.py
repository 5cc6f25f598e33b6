"""One run as an operator reads it: where it stands, what a failure now would cost, what happened to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from ckptguard.errors import NotFoundError
from ckptguard_api.domain.exposure import Exposure, SavePoint, exposure_of
from ckptguard_api.domain.resume import Question
from ckptguard_api.domain.run_policy import RunPolicy, policy_of
from ckptguard_api.domain.starts import Start, starts_of
from ckptguard_api.repositories import run_story
from ckptguard_api.repositories.run_board import board_rows
from ckptguard_api.repositories.run_overview import tally
from ckptguard_api.repositories.run_story import MAX_COUNTED, MAX_TIMELINE
from ckptguard_api.repositories.runs import find_run
from ckptguard_api.services import Services
from ckptguard_api.use_cases.resume_target import ResumeAnswer, answer_resume_target
from ckptguard_api.use_cases.run_board import BoardRun, find_on_board


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """A run without its checkpoints.

    Args:
        now: Time that everything is told at.
        row: Of `runs`.
        policy: Of the run.
        board: As the list of runs shows it.
        verdicts: How many checkpoints there are by verdict in force; deleted ones are not counted.
        lifecycles: By lifecycle.
        num_counted: How many were counted; `is_cut`: there are more.
        branches: The last first.
        starts: The last first.
    """

    now: datetime
    row: Row[Any]
    policy: RunPolicy
    board: BoardRun
    verdicts: Mapping[str, int]
    lifecycles: Mapping[str, int]
    branches: Sequence[Row[Any]]
    starts: Sequence[Start]

    @property
    def num_counted(self) -> int:
        """How many checkpoints were counted."""
        return sum(self.lifecycles.values())

    @property
    def is_cut(self) -> bool:
        """Whether there may be more."""
        return self.num_counted == MAX_COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureNow:
    """What would happen if the run failed now.

    Args:
        answer: What a launcher would be told.
        exposure: What would be lost; all None where nothing lets it resume.
        newest_step: Highest step known of the run; None: there is none.
    """

    answer: ResumeAnswer
    exposure: Exposure
    newest_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The newest checkpoints of a run.

    Args:
        now: Time that it was read at.
        checkpoints: Oldest first, by the order of the run.
        is_cut: There are more; these are the newest.
        target_id: Newest that a resume may use; None: there is none.
        starts: The last first.
    """

    now: datetime
    checkpoints: Sequence[Row[Any]]
    is_cut: bool
    target_id: int | None
    starts: Sequence[Start]


def show_run_story(services: Services, *, project_id: int, name: str) -> RunStory:
    """Return one run.

    Raises:
        NotFoundError: There is no such run.
    """
    with services.database.read() as tx:
        row = find_run(tx, project_id, name)
        board = find_on_board(services, tx, project_id=project_id, name=name)
        if row is None or board is None:
            raise _no_such_run()
        counts = tally(run_story.count_kinds(tx, row.id), board.open.queued + board.open.running)
        return RunStory(
            now=tx.now,
            row=row,
            policy=policy_of(row),
            board=board,
            verdicts=counts.verdicts,
            lifecycles=counts.lifecycles,
            branches=run_story.branch_rows(tx, row.id),
            starts=starts_of(run_story.start_rows(tx, row.id)),
        )


def failure_now(services: Services, story: RunStory) -> FailureNow:
    """Say what a launcher would be told now, by the run's policy, and what would be lost."""
    row = story.row
    answer = answer_resume_target(
        services.database, project_id=row.project_id, run=row.name, question=Question()
    )
    target, newest = answer.choice.target, story.board.newest
    newest_step = None if newest is None else newest.step
    exposure = exposure_of(
        now=story.now,
        newest_valid=None if target is None else SavePoint(step=target.step, created_at=target.created_at),
        newest_step=newest_step,
        gpus=row.gpus,
        usd_per_gpu_hour=row.usd_per_gpu_hour,
    )
    return FailureNow(answer=answer, exposure=exposure, newest_step=newest_step)


def read_timeline(services: Services, *, project_id: int, name: str) -> Timeline:
    """Return the newest checkpoints of a run, and its starts.

    Raises:
        NotFoundError: There is no such run.
    """
    with services.database.read() as tx:
        found = board_rows(tx, project_id, run_name=name)
        if not found:
            raise _no_such_run()
        (run,) = found
        newest_first = run_story.timeline_rows(tx, run.id)
        return Timeline(
            now=tx.now,
            checkpoints=newest_first[:MAX_TIMELINE][::-1],
            is_cut=len(newest_first) > MAX_TIMELINE,
            target_id=run.valid_id,
            starts=starts_of(run_story.start_rows(tx, run.id)),
        )


def _no_such_run() -> NotFoundError:
    return NotFoundError("no such run")

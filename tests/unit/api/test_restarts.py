"""Starts of a run: a branch for each way it goes, what is left behind, and failures that count."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from ckptguard.errors import ConflictError, InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind, Hold, Lifecycle, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.tables import branches, restarts, runs, validations
from ckptguard_api.use_cases.holds import Releasable, release_checkpoint
from ckptguard_api.use_cases.restarts import RestartAnswer
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.started_run import EARLY, LOADING, PROGRESSED, RESUMED, Training


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with fresh_database("memory", folder=tmp_path) as database:
        yield Training(database=database)


def test_a_whole_story_is_the_same_on_both_databases(database: Database) -> None:
    """Every statement of the use case runs here; the cases are below, in memory."""
    training = Training(database=database)
    first, second, third = training.save(100), training.save(200), training.save(300)
    assert training.tell(RESUMED, first, attempt="a") == RestartAnswer(branch=1, opened=True, is_new=True)
    assert not training.tell(RESUMED, first, attempt="a").is_new
    other = training.save(150)
    training.tell(RESUMED, third)
    assert (training.live(), training.run.branch) == ([first, second, third], 2)
    training.fail(third, "a", "b", "c")
    assert training.suspects() == [third]
    training.fail(second, "a", "b", "c")
    assert (training.live(), training.suspects()) == ([first, second, third], [])
    assert training.run.restarts_failing_at is not None
    training.tell(PROGRESSED, second)
    assert training.run.restarts_failing_at is None
    training.tell(RESUMED, is_fresh_despite=True, repeated_run="run-7")
    assert training.live() == []
    training.tell(RESUMED, other)
    assert training.live() == [first, other]


def test_a_resume_opens_a_branch_and_rolls_back_later_steps(training: Training) -> None:
    first, second, third = training.save(100), training.save(200), training.save(300)
    revision = training.run.revision
    assert training.tell(RESUMED, first) == RestartAnswer(branch=1, opened=True, is_new=True)
    assert training.live() == [first]
    assert {training.row(row_id).superseded_by for row_id in (second, third)} == {"rolled_back"}
    assert training.run.branch == 1
    assert training.run.revision > revision
    told = training.events(EventKind.CHECKPOINT_SUPERSEDED)
    assert [(event.checkpoint_id, event.data["superseded_by"]) for event in told] == [
        (second, "rolled_back"),
        (third, "rolled_back"),
    ]
    (branched,) = training.events(EventKind.RUN_BRANCHED)
    assert branched.checkpoint_id == first
    assert branched.data == {
        "branch": 1,
        "from_branch": 0,
        "from_step": 100,
        "rolled_back": 2,
        "restored": 0,
    }
    assert len(training.events(EventKind.RUN_RESTARTED)) == 1


def test_a_resume_from_the_newest_opens_a_branch_too_and_leaves_nothing_behind(training: Training) -> None:
    first, second = training.save(100), training.save(200)
    assert training.tell(RESUMED, second).opened
    assert training.live() == [first, second]


def test_resuming_again_from_the_same_checkpoint_reuses_the_empty_branch(training: Training) -> None:
    first = training.save(100)
    assert training.tell(RESUMED, first) == RestartAnswer(branch=1, opened=True, is_new=True)
    assert training.tell(RESUMED, first) == RestartAnswer(branch=1, opened=False, is_new=True)
    training.save(150)
    assert training.tell(RESUMED, first) == RestartAnswer(branch=2, opened=True, is_new=True)


def test_the_same_report_twice_is_one_and_answers_the_same(training: Training) -> None:
    first = training.save(100)
    told = training.tell(RESUMED, first, attempt="a")
    revision = training.run.revision
    assert training.tell(RESUMED, first, attempt="a") == RestartAnswer(branch=1, opened=True, is_new=False)
    assert told.is_new
    assert training.run.revision == revision
    assert len(training.events(EventKind.RUN_RESTARTED)) == 1


def test_the_same_start_told_with_another_checkpoint_is_a_conflict(training: Training) -> None:
    first, second = training.save(100), training.save(200)
    training.tell(RESUMED, second, attempt="a")
    with pytest.raises(ConflictError, match="before"):
        training.tell(RESUMED, first, attempt="a")
    with pytest.raises(ConflictError, match="was told to come from"):
        training.tell(LOADING, first, attempt="a")
    assert training.live() == [first, second]


def test_a_rolled_back_checkpoint_becomes_live_again_with_what_led_to_it(training: Training) -> None:
    first, second, third = training.save(100), training.save(200), training.save(300)
    training.tell(RESUMED, first)
    other = training.save(150)
    training.tell(RESUMED, third)
    assert training.live() == [first, second, third]
    assert training.row(other).superseded_by == "rolled_back"
    restored = training.events(EventKind.CHECKPOINT_RESTORED)
    assert [event.checkpoint_id for event in restored] == [second, third]


def test_an_earlier_save_with_a_later_step_of_another_way_is_rolled_back(training: Training) -> None:
    first, second = training.save(100), training.save(200)
    training.tell(RESUMED, first)
    other = training.save(150)
    training.tell(RESUMED, second)
    assert training.live() == [first, second]
    training.tell(RESUMED, other)
    assert training.live() == [first, other]


def test_open_validations_of_what_is_rolled_back_stay(training: Training) -> None:
    first, second = training.save(100), training.save(200, verdict=None)
    with training.database.write() as tx:
        rows.add_validation(tx, second, state=ValidationState.QUEUED)
    training.tell(RESUMED, first)
    with training.database.read() as tx:
        assert list(
            tx.execute(select(validations.c.state).where(validations.c.checkpoint_id == second)).scalars()
        ) == ["queued"]
    assert training.row(second).validation_state == "queued"


def test_an_announced_save_of_the_way_left_is_rolled_back_and_comes_back_incomplete(
    training: Training,
) -> None:
    first, third = training.save(100), training.save(300)
    second = training.save(200, verdict=None, lifecycle=Lifecycle.ANNOUNCED)
    training.tell(RESUMED, first)
    assert training.row(second).superseded_by == "rolled_back"
    training.tell(RESUMED, third)
    assert training.row(second).lifecycle == "incomplete"


@pytest.mark.parametrize(
    ("lifecycle", "superseded_by"),
    [("superseded", "rewritten"), ("deleted", None), ("incomplete", None), ("announced", None)],
)
def test_nothing_goes_on_from_bytes_that_are_not_there(
    training: Training, lifecycle: str, superseded_by: str | None
) -> None:
    gone = training.save(100, lifecycle=Lifecycle(lifecycle), superseded_by=superseded_by)
    with pytest.raises(ConflictError, match=f"is {lifecycle}"):
        training.tell(RESUMED, gone)
    assert training.run.branch == 0


def test_a_resume_clears_step_went_back(training: Training) -> None:
    first = training.save(100)
    with training.database.write() as tx:
        tx.execute(runs.update().values(step_went_back_at=tx.now))
    training.tell(RESUMED, first)
    assert training.run.step_went_back_at is None


def test_a_first_start_from_nothing_needs_no_leave(training: Training) -> None:
    assert training.tell(RESUMED) == RestartAnswer(branch=0, opened=False, is_new=True)


def test_a_start_from_nothing_despite_checkpoints_is_refused_unless_it_is_said(training: Training) -> None:
    first = training.save(100)
    with pytest.raises(ConflictError, match="needs `is_fresh_despite`"):
        training.tell(RESUMED)
    for name in (None, "run-8"):
        with pytest.raises(InvalidRequestError) as caught:
            training.tell(RESUMED, is_fresh_despite=True, repeated_run=name)
        assert caught.value.problems == ("/run: not 'run-7'",)
    assert training.live() == [first]
    assert not training.events(EventKind.RUN_FRESH_START)
    assert training.tell(RESUMED, is_fresh_despite=True, repeated_run="run-7", detail="lost").branch == 1
    assert training.live() == []
    (event,) = training.events(EventKind.RUN_FRESH_START)
    assert event.data["detail"] == "lost"
    with training.database.read() as tx:
        opened = tx.execute(select(branches).where(branches.c.number == 1)).one()
    assert opened.from_checkpoint_id is None
    training.tell(RESUMED, first)
    assert training.live() == [first]


def test_three_failures_on_disjoint_nodes_make_a_checkpoint_suspect(training: Training) -> None:
    training.save(100)
    second = training.save(200)
    training.fail(second, "a b", "a b")
    assert training.suspects() == []
    training.fail(second, "c d")
    assert training.suspects() == [second]
    (held,) = training.events(EventKind.CHECKPOINT_HELD)
    assert (held.checkpoint_id, held.data["hold"]) == (second, Hold.SUSPECT.value)


def test_failures_that_share_a_node_never_do(training: Training) -> None:
    training.save(100)
    training.fail(training.save(200), *["a b", "b c"] * 4)
    assert training.suspects() == []


def test_failures_after_the_runs_steps_do_not_count(training: Training) -> None:
    training.save(100)
    second = training.save(200)
    for node in "abcd":
        training.tell(EARLY, second, nodes=(node,), steps_done=20)
    assert training.suspects() == []


def test_if_the_older_one_fails_too_the_first_is_cleared_and_is_the_newest_again(training: Training) -> None:
    first, second = training.save(100), training.save(200)
    training.fail(second, "a", "b", "c")
    training.fail(first, "a", "b")
    assert (training.live(), training.suspects()) == ([first], [second])
    training.fail(first, "c")
    assert training.suspects() == []
    assert training.live() == [first, second]
    assert training.run.restarts_failing_at is not None
    (failing,) = training.events(EventKind.RUN_RESTARTS_FAILING)
    assert failing.data == {"cleared": [second]}
    (released,) = training.events(EventKind.CHECKPOINT_RELEASED)
    assert released.checkpoint_id == second
    training.fail(second, "a", "b", "c")
    assert training.suspects() == []
    assert len(training.events(EventKind.RUN_RESTARTS_FAILING)) == 1


def _cleared(training: Training) -> tuple[int, int]:
    """Return two checkpoints; the run was at the older, and is at the newer again: neither is to blame."""
    first, second = training.save(100), training.save(200)
    training.fail(second, "a", "b", "c")
    training.fail(first, "a", "b", "c")
    assert (training.live(), training.suspects()) == ([first, second], [])
    return first, second


def test_a_job_that_gets_going_after_all_leaves_the_cleared_one_behind(database: Database) -> None:
    training = Training(database=database)
    first, second = _cleared(training)
    revision = training.run.revision
    expected = training.announce(110)
    assert training.live() == [first, second], "nothing is saved yet"
    third = training.register(110)
    assert third == expected
    assert training.live() == [first, third]
    assert training.row(second).superseded_by == "rolled_back"
    assert training.run.revision > revision
    told = training.events(EventKind.CHECKPOINT_SUPERSEDED)[-1]
    assert (told.checkpoint_id, told.data) == (second, {"superseded_by": "rolled_back"})
    fourth = training.register(120)
    assert training.live() == [first, third, fourth]


def test_a_job_that_gets_going_after_all_gets_back_what_it_came_from(training: Training) -> None:
    first = training.save(50)
    second = training.save(100)
    training.tell(RESUMED, first)
    third = training.save(200)
    training.fail(third, "a", "b", "c")
    training.fail(second, "a", "b", "c")
    assert training.live() == [first, third], "the newest again is of another way"
    fourth = training.register(110)
    assert training.live() == [first, second, fourth]


def test_a_save_of_a_way_that_was_left_moves_no_run(training: Training) -> None:
    first, second = _cleared(training)
    late = training.register(300, branch=0)
    assert training.live() == [first, second]
    assert training.row(late).superseded_by == "rolled_back"


def test_progress_clears_counts_and_restarts_failing(training: Training) -> None:
    first, second = training.save(100), training.save(200)
    training.fail(second, "a", "b")
    training.tell(PROGRESSED, second)
    training.fail(second, "c")
    assert training.suspects() == []
    with training.database.write() as tx:
        tx.execute(runs.update().values(restarts_failing_at=tx.now))
    training.tell(PROGRESSED, first)
    assert training.run.restarts_failing_at is None
    with training.database.read() as tx:
        assert tx.execute(select(restarts).where(~restarts.c.is_settled)).all() == []


def test_progress_from_a_suspect_checkpoint_clears_it(training: Training) -> None:
    training.save(100)
    second = training.save(200)
    training.fail(second, "a", "b", "c")
    training.tell(RESUMED, second, attempt="forced")
    training.tell(PROGRESSED, attempt="forced")
    assert training.suspects() == []


def test_the_last_usable_checkpoint_never_becomes_suspect(training: Training) -> None:
    training.save(100, verdict=Verdict.INVALID)
    only = training.save(200)
    training.fail(only, "a", "b", "c")
    assert training.suspects() == []
    assert training.run.restarts_failing_at is not None


def test_a_released_suspect_is_judged_anew(training: Training) -> None:
    training.save(100)
    second = training.save(200)
    training.fail(second, "a", "b", "c")
    release_checkpoint(
        training.services,
        project_id=training.project_id,
        checkpoint_id=second,
        what=Releasable.SUSPECT,
        reason="the switch was broken",
        actor=SERVICE,
    )
    training.fail(second, "d")
    assert training.suspects() == []


def test_a_checkpoint_of_another_run_is_none(training: Training) -> None:
    with training.database.write() as tx:
        other_run = rows.add_run(tx, training.project_id, "run-8")
        other = rows.add_checkpoint(tx, other_run, training.store_id, step=1, verdict=Verdict.VALID)
    with pytest.raises(NotFoundError):
        training.tell(RESUMED, other)
    with pytest.raises(NotFoundError):
        training.tell(RESUMED, 10**12)


def test_every_problem_of_a_report_is_listed() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        RestartReport(
            attempt="a\x1b",
            outcome=PROGRESSED,
            checkpoint_id=4,
            nodes=("", "n"),
            steps_done=-1,
            detail="\x00",
            is_fresh_despite=True,
        )
    pointers = [problem.partition(":")[0].split()[0] for problem in caught.value.problems]
    assert pointers == [
        "/attempt",
        "/nodes/0",
        "/steps_done",
        "/detail",
        "/is_fresh_despite",
        "/checkpoint_id",
    ]

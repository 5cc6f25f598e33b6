"""A verdict that time may change is asked for again by the service, less and less often, and not for ever."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Row, select, update

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Depth
from ckptguard.model.report import Report, report_to_json
from ckptguard.model.service import (
    AttemptEnding,
    Lifecycle,
    ResumeState,
    SupersededBy,
    ValidationReason,
    ValidationState,
)
from ckptguard.model.verdict import Assurance, CheckResult, CheckStatus
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.answers.encoding import to_bytes
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.attempt_rules import retry_pause_s
from ckptguard_api.domain.resume import Question
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, events, runs, validations
from ckptguard_api.use_cases.resume_target import ResumeAnswer, answer_resume_target
from ckptguard_api.use_cases.retries import OPEN_RETRIES, queue_retries
from tests.databases import fresh_database
from tests.leased_service import LeasedService, files_of, invalid, key_of, unknown, valid

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_RETRIES = 3
SETTINGS = Settings(retry_first_s=60.0, retry_max_s=200.0, max_retries=MAX_RETRIES, max_counted_attempts=1)


@dataclass(kw_only=True)
class Scene:
    """A run with checkpoints, a clock, and what happens to them."""

    service: LeasedService
    clock: FakeClock
    project_id: int
    store_id: int
    run_id: int

    def checkpoint(self, step: int = 1) -> int:
        """Add one."""
        return self.service.add_checkpoint(self.run_id, self.store_id, step=step)

    def doubted(self, step: int = 1, *, report: Report | None = None) -> int:
        """Add one whose verdict is UNKNOWN."""
        checkpoint_id = self.checkpoint(step)
        self.service.judge(checkpoint_id, report or unknown(files=()))
        return checkpoint_id

    def do_due(self) -> int:
        """Do rounds until there is no more; return how many validations they queued."""
        before = len(self.service.rows(validations))
        cursor = 0
        for _ in range(100):
            with self.service.database.write() as tx:
                done = queue_retries(tx, cursor)
            cursor = done.cursor
            if not done.is_more:
                return len(self.service.rows(validations)) - before
        pytest.fail("the rounds do not end")

    def retry(self, checkpoint_id: int, report: Report) -> None:
        """Let the time come, and a worker give this report."""
        self.clock.advance(self.pause_s(checkpoint_id))
        assert self.do_due() == 1
        lease = self.service.leased()
        assert lease.checkpoint.id == checkpoint_id
        give_verdict(self.service.services, key_of(lease), report=report_to_json(report), actor=SERVICE)

    def pause_s(self, checkpoint_id: int) -> float:
        """Return seconds until it is due."""
        at = self.service.checkpoint(checkpoint_id).retry_at
        assert at is not None
        return float((at - self.clock.now()).total_seconds())

    def open_ones(self) -> list[Row[Any]]:
        """Return what is queued, in the order of ids."""
        return [row for row in self.service.rows(validations) if row.state == ValidationState.QUEUED.value]

    def answer(self, **question: Any) -> ResumeAnswer:  # noqa: ANN401 - of a question
        """Ask for the resume target."""
        [run] = [row for row in self.service.rows(runs) if row.id == self.run_id]
        return answer_resume_target(
            self.service.database, project_id=self.project_id, run=run.name, question=Question(**question)
        )

    def change(self, checkpoint_id: int, **columns: object) -> None:
        """Set columns of a checkpoint."""
        with self.service.database.write() as tx:
            tx.execute(update(checkpoints).where(checkpoints.c.id == checkpoint_id).values(columns))


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    clock = FakeClock(START)
    with fresh_database(request.param, folder=tmp_path, postgres=server, clock=clock) as database:
        service = LeasedService(database=database, settings=SETTINGS)
        project_id = service.add_project()
        yield Scene(
            service=service,
            clock=clock,
            project_id=project_id,
            store_id=service.add_store(project_id),
            run_id=service.add_run(project_id),
        )


def for_good(code: FindingCode) -> Report:
    """Return a report in doubt that no time settles."""
    finding = Finding(code=code, check=CheckName.EXISTENCE, severity=Severity.UNKNOWN, message="so it is")
    check = CheckResult(name=CheckName.EXISTENCE, status=CheckStatus.UNKNOWN, findings=(finding,))
    return Report(
        **{name: getattr(unknown(), name) for name in Report.__dataclass_fields__} | {"checks": (check,)}
    )


def test_it_is_asked_again_when_its_time_has_come_and_becomes_valid(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    assert scene.do_due() == 0, "not before its time"
    scene.clock.advance(60)
    assert (scene.do_due(), scene.do_due()) == (1, 0)
    [queued] = scene.open_ones()
    assert (queued.reason, queued.depth, queued.requested_by) == ("retry", "load", SERVICE.name)
    assert scene.service.checkpoint(checkpoint_id).retry_at is None, "while one is open"
    lease = scene.service.leased()
    give_verdict(scene.service.services, key_of(lease), report=report_to_json(valid()), actor=SERVICE)
    row = scene.service.checkpoint(checkpoint_id)
    assert (row.verdict, row.retry_at) == ("VALID", None)
    scene.clock.advance(86_400)
    assert scene.do_due() == 0


def test_each_pause_is_twice_the_last_up_to_a_bound_and_then_nobody_asks_again(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    pauses = []
    for _ in range(MAX_RETRIES):
        pauses.append(scene.pause_s(checkpoint_id))
        scene.retry(checkpoint_id, unknown(files=()))
    assert pauses == [60.0, 120.0, 200.0]
    assert scene.service.checkpoint(checkpoint_id).retry_at is None
    scene.clock.advance(86_400)
    assert scene.do_due() == 0


def test_a_person_who_asks_begins_the_count_anew(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    for _ in range(MAX_RETRIES):
        scene.retry(checkpoint_id, unknown(files=()))
    scene.service.judge(checkpoint_id, unknown(files=()))
    assert scene.pause_s(checkpoint_id) == 60.0


def test_when_the_first_verdict_was_given_is_kept_whatever_comes_later(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    first = scene.service.checkpoint(checkpoint_id).first_verdict_at
    scene.retry(checkpoint_id, valid())
    row = scene.service.checkpoint(checkpoint_id)
    assert (row.verdict, row.first_verdict_at) == ("VALID", first)
    assert row.validated_at > first


def test_with_no_retries_allowed_nothing_is_asked_again(scene: Scene) -> None:
    scene.service.settings = SETTINGS.model_copy(update={"max_retries": 0})
    assert scene.service.checkpoint(scene.doubted()).retry_at is None


@pytest.mark.parametrize(
    "report",
    [
        valid(),
        invalid(),
        invalid(Basis.UNSAFE),
        invalid(Basis.POLICY),
        for_good(FindingCode.LIMIT_EXCEEDED),
        for_good(FindingCode.UNKNOWN_GLOBAL),
        for_good(FindingCode.REWRITTEN_AFTER_COMMIT),
    ],
    ids=lambda report: f"{report.judgement.verdict}-{report.judgement.basis or report.findings[:1]}"[:40],
)
def test_what_time_does_not_change_is_not_asked_again(scene: Scene, report: Report) -> None:
    checkpoint_id = scene.doubted(report=report)
    assert scene.service.checkpoint(checkpoint_id).retry_at is None


def test_what_was_given_up_is_asked_again(scene: Scene) -> None:
    checkpoint_id = scene.checkpoint()
    scene.service.queue(checkpoint_id)
    lease = scene.service.leased()
    release(scene.service.services, key_of(lease), ending=AttemptEnding.FAILED, reason="so", actor=SERVICE)
    assert scene.service.checkpoint(checkpoint_id).verdict == "UNKNOWN"
    assert scene.pause_s(checkpoint_id) == 60.0


def test_a_valid_that_could_not_be_proven_again_is_asked_for_again_as_deep_as_that(scene: Scene) -> None:
    checkpoint_id = scene.checkpoint()
    scene.service.judge(checkpoint_id, valid())
    scene.service.judge(checkpoint_id, unknown(files=()), depth=Depth.CONTENT)
    assert scene.service.checkpoint(checkpoint_id).verdict == "VALID"
    scene.clock.advance(60)
    assert scene.do_due() == 1
    assert [row.depth for row in scene.open_ones()] == ["content"]


def test_damage_is_not_asked_again_whatever_could_not_be_found_out_since(scene: Scene) -> None:
    checkpoint_id = scene.doubted(report=invalid())
    scene.service.judge(checkpoint_id, unknown(files=()))
    scene.service.judge(checkpoint_id, unknown(FindingCode.UNSTABLE_READ))
    row = scene.service.checkpoint(checkpoint_id)
    assert (row.verdict, row.retry_at) == ("INVALID", None)


@pytest.mark.parametrize(
    "gone",
    [
        {"lifecycle": Lifecycle.SUPERSEDED.value, "superseded_by": SupersededBy.REWRITTEN.value},
        {"lifecycle": Lifecycle.SUPERSEDED.value, "superseded_by": SupersededBy.ROLLED_BACK.value},
        {"lifecycle": Lifecycle.DELETED.value},
        {"lifecycle": Lifecycle.INCOMPLETE.value},
    ],
    ids=lambda gone: gone.get("superseded_by", gone["lifecycle"]),
)
def test_what_nobody_wants_is_not_asked_again(scene: Scene, gone: dict[str, str]) -> None:
    checkpoint_id = scene.doubted()
    scene.change(checkpoint_id, **gone)
    scene.clock.advance(86_400)
    assert scene.do_due() == 0
    assert scene.answer(step=1).choice.state is ResumeState.NONE_VALID


def test_one_that_comes_back_with_the_run_is_asked_again(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    rolled = {"lifecycle": Lifecycle.SUPERSEDED.value, "superseded_by": SupersededBy.ROLLED_BACK.value}
    scene.change(checkpoint_id, **rolled)
    scene.clock.advance(60)
    scene.change(checkpoint_id, lifecycle=Lifecycle.REGISTERED.value, superseded_by=None)
    assert scene.do_due() == 1


def test_the_newest_of_a_run_come_first_few_at_a_time_and_runs_take_turns(scene: Scene) -> None:
    for step in range(OPEN_RETRIES + 2):
        scene.doubted(step)
    other = scene.service.add_run(scene.project_id)
    lone = scene.service.add_checkpoint(other, scene.store_id, step=1)
    scene.service.judge(lone, unknown(files=()))
    scene.clock.advance(60)
    assert scene.do_due() == OPEN_RETRIES + 1
    steps = [row.step for row in scene.open_ones() if row.run_id == scene.run_id]
    assert steps == list(range(OPEN_RETRIES + 1, 1, -1))
    assert [row.run_id for row in scene.open_ones()][-1] == other


def test_first_validations_go_before_retries_and_retries_before_scrubs(scene: Scene) -> None:
    doubted, scrubbed = scene.doubted(9), scene.checkpoint(8)
    scene.service.queue(scrubbed, reason=ValidationReason.SCRUB)
    scene.clock.advance(60)
    assert scene.do_due() == 1
    first, second = scene.checkpoint(1), scene.checkpoint(2)
    scene.service.queue(first)
    scene.service.queue(second)
    # A name that takes its eighth claim later: that one takes what has waited longest.
    claimed = [scene.service.leased("w").checkpoint.id for _ in range(4)]
    assert claimed == [second, first, doubted, scrubbed]


def test_a_retry_that_somebody_asks_for_is_one_no_more(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    scene.clock.advance(60)
    scene.do_due()
    row, is_new = scene.service.queue(checkpoint_id, reason=ValidationReason.SCRUB)
    assert (row.reason, is_new) == ("retry", False)
    row, is_new = scene.service.queue(checkpoint_id, reason=ValidationReason.REQUESTED)
    assert (row.reason, row.tier, is_new) == ("requested", 1, False)


def test_two_schedulers_at_once_never_ask_twice(scene: Scene) -> None:
    checkpoint_ids = [scene.doubted(step) for step in range(4)]
    scene.clock.advance(60)
    failed: list[BaseException] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        try:
            with scene.service.database.write() as tx:
                queue_retries(tx, 0)
        except Exception as error:  # noqa: BLE001 - told by the test
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(row.checkpoint_id for row in scene.open_ones()) == checkpoint_ids
    told = [row for row in scene.service.rows(events) if row.kind == "validation.queued"]
    assert len([row for row in told if row.data["reason"] == "retry"]) == len(checkpoint_ids)


def test_the_schedule_is_in_the_database_alone(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    url = scene.service.database.engine.url.render_as_string(hide_password=False)
    scene.clock.advance(60)
    other = Database(url, clock=scene.clock)
    try:
        with other.write() as tx:
            queue_retries(tx, 0)
            open_ids = list(
                tx.execute(
                    select(validations.c.checkpoint_id).where(validations.c.state == "queued")
                ).scalars()
            )
    finally:
        other.close()
    assert open_ids == [checkpoint_id]


def test_the_audit_says_when_it_is_asked_again(scene: Scene) -> None:
    scene.doubted()
    [told] = [row for row in scene.service.rows(events) if row.kind == "validation.finished"]
    assert told.data["retry_at"] == (START + timedelta(seconds=60)).isoformat()


# -- the resume target ---------------------------------------------------------------------------------


def test_while_it_is_asked_again_the_run_is_pending_and_then_it_is_none_valid(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    for _ in range(MAX_RETRIES):
        before = scene.answer()
        assert before.choice.state is ResumeState.PENDING
        assert before.waited_for == (), "a launcher does not hang for what is not queued"
        assert before.choice.passed_over[0].candidate.next_try_at is not None
        scene.clock.advance(scene.pause_s(checkpoint_id))
        assert scene.answer().choice.state is ResumeState.PENDING, "due, and not queued yet"
        scene.do_due()
        queued = scene.answer()
        assert queued.index > before.index
        assert (queued.choice.state, len(queued.waited_for)) == (ResumeState.PENDING, 1)
        lease = scene.service.leased()
        report = report_to_json(unknown(files=()))
        give_verdict(scene.service.services, key_of(lease), report=report, actor=SERVICE)
    assert scene.answer().choice.state is ResumeState.NONE_VALID


def test_an_answer_says_when_what_is_passed_over_is_tried_next(scene: Scene) -> None:
    scene.doubted()
    [told] = json.loads(to_bytes(scene.answer()))["passed_over"]
    assert (told["reason"], told["retry_at"]) == ("unknown", "2026-01-01T00:01:00.000000Z")
    assert told["detail"].endswith("; tried again by itself at 2026-01-01T00:01:00Z")


def test_an_older_valid_is_given_at_once_unless_the_newest_is_demanded(scene: Scene) -> None:
    older, newer = scene.checkpoint(1), scene.checkpoint(2)
    scene.service.judge(older, valid())
    scene.service.judge(newer, unknown(files=()))
    choice = scene.answer().choice
    assert (choice.state, choice.target and choice.target.id) == (ResumeState.VALID, older)
    assert scene.answer(require_newest=True).choice.state is ResumeState.PENDING


def test_what_is_not_asked_again_as_deep_as_wanted_is_not_pending(scene: Scene) -> None:
    checkpoint_id = scene.checkpoint()
    scene.service.judge(checkpoint_id, unknown(files=()), depth=Depth.CONTENT)
    assert scene.answer().choice.state is ResumeState.NONE_VALID
    assert scene.answer(min_assurance=Assurance.CONTENT).choice.state is ResumeState.PENDING


def test_what_is_held_is_not_pending(scene: Scene) -> None:
    checkpoint_id = scene.doubted()
    scene.change(checkpoint_id, is_quarantined=True)
    assert scene.answer().choice.state is ResumeState.NONE_VALID


def test_a_valid_below_what_is_asked_that_is_asked_again_is_pending_with_it_below(scene: Scene) -> None:
    checkpoint_id = scene.checkpoint()
    scene.service.judge(checkpoint_id, valid(Depth.CONTENT), depth=Depth.CONTENT)
    scene.service.judge(checkpoint_id, unknown(files=files_of("a")))
    choice = scene.answer().choice
    assert (choice.state, choice.below and choice.below.id) == (ResumeState.PENDING, checkpoint_id)


@pytest.mark.parametrize(
    ("retries", "pause_s"), [(0, 60.0), (1, 120.0), (5, 1920.0), (6, 3600.0), (10_000, 3600.0)]
)
def test_pauses_double_up_to_an_hour(retries: int, pause_s: float) -> None:
    assert retry_pause_s(retries, first_s=60.0, max_s=3600.0) == pause_s

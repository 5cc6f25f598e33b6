"""A save id made from content names all saves of these bytes: a later one is a checkpoint of its own.

The same request told again is still the same checkpoint, however late it comes and whatever became of it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Row, update

from ckptguard.errors import ConflictError
from ckptguard.model.manifest import Manifest, Origin, default_save_id, identity
from ckptguard.model.service import Hold, RestartOutcome, ResumeState
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.registration import Described
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.domain.resume import Question
from ckptguard_api.tables import checkpoints, events
from ckptguard_api.use_cases.deletions import mark_deleted
from ckptguard_api.use_cases.holds import hold_checkpoint
from ckptguard_api.use_cases.register import Registered
from ckptguard_api.use_cases.restarts import report_restart
from ckptguard_api.use_cases.resume_target import answer_resume_target
from tests.registrations import Trainer, saved

STEP_S = 60.0


@dataclass(kw_only=True)
class Training:
    """A job that writes the same bytes whenever it does the same step; told with manifests read back."""

    trainer: Trainer
    clock: FakeClock
    starts: int = field(default=0)

    def save(self, step: int, path: str | None = None, **facts: Any) -> Registered:  # noqa: ANN401 - of a manifest
        """Save a step, some time after whatever happened before, and tell of it."""
        self.clock.advance(STEP_S)
        return self.tell(self.read_back(step, **facts), path)

    def read_back(self, step: int, **facts: Any) -> Manifest:  # noqa: ANN401 - of a manifest
        """Return what somebody who reads the bytes of a step now writes down."""
        made = replace(saved("r", step, origin=Origin.READ_BACK), created_at=self.clock.now())
        return replace(made, **{"save_id": default_save_id(identity(made))} | facts)

    def tell(self, manifest: Manifest, path: str | None = None) -> Registered:
        """Register what was written down, sooner or later."""
        return self.trainer.register(manifest.step, path, manifest=manifest)

    def resume(self, checkpoint_id: int) -> None:
        """Start again from a checkpoint."""
        self.clock.advance(STEP_S)
        self.starts += 1
        report = RestartReport(
            attempt=f"start-{self.starts}", outcome=RestartOutcome.RESUMED, checkpoint_id=checkpoint_id
        )
        report_restart(
            self.trainer.services,
            project_id=self.trainer.project_id,
            run_name="r",
            report=report,
            actor=SERVICE,
        )

    def row(self, done: Registered) -> Row[Any]:
        """Return a checkpoint as it is now."""
        return self.trainer.checkpoint(done.checkpoint.id)

    def live(self) -> list[int]:
        """Return the checkpoints that are registered."""
        return [row.id for row in self.trainer.rows(checkpoints) if row.lifecycle == "registered"]


@pytest.fixture
def training(database: Database) -> Training:
    """Return a job over an empty database, on both kinds."""
    database.clock = clock = FakeClock()
    return Training(trainer=Trainer(database=database), clock=clock)


def roll_back(training: Training, first: Registered, _saved: Registered) -> None:
    training.resume(first.checkpoint.id)


def overwrite(training: Training, _first: Registered, done: Registered) -> None:
    training.save(done.checkpoint.step + 1, done.checkpoint.path)


def delete(training: Training, _first: Registered, done: Registered) -> None:
    training.clock.advance(STEP_S)
    mark_deleted(
        training.trainer.services,
        project_id=training.trainer.project_id,
        checkpoint_id=done.checkpoint.id,
        reason="room was needed",
        actor=SERVICE,
    )


Loss = Callable[[Training, Registered, Registered], None]
LOSSES: list[Loss] = [roll_back, overwrite, delete]


def _lost(training: Training, loss: Loss) -> tuple[Registered, Manifest, Registered]:
    first = training.save(1)
    training.clock.advance(STEP_S)
    told = training.read_back(2)
    old = training.tell(told)
    loss(training, first, old)
    assert training.row(old).lifecycle in {"superseded", "deleted"}
    return first, told, old


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_the_same_bytes_saved_again_are_a_checkpoint_of_its_own(training: Training, loss: Loss) -> None:
    _, _, old = _lost(training, loss)
    before = training.row(old)
    new = training.save(2)
    assert new.is_new
    assert new.checkpoint.id != old.checkpoint.id
    assert new.validation is not None
    row = training.row(new)
    assert (row.lifecycle, row.superseded_by, row.validation_state) == ("registered", None, "queued")
    assert row.branch == training.trainer.rows(checkpoints)[-1].branch
    assert row.save_id == old.checkpoint.save_id, "the writer finds the save of now under what it said"
    after = training.row(old)
    kept = ("lifecycle", "created_at", "registered_at", "location", "branch")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    told = [row for row in training.trainer.rows(events) if row.kind == "checkpoint.registered"][-1]
    assert (told.checkpoint_id, told.data["saved_before"]) == (new.checkpoint.id, old.checkpoint.id)
    assert f"was saved before, as checkpoint {old.checkpoint.id}" in new.notes[0]


def test_what_was_saved_again_may_be_resumed_from(training: Training) -> None:
    _lost(training, roll_back)
    new = training.save(2)
    with training.trainer.database.write() as tx:
        proven: dict[str, Any] = {
            "verdict": "VALID",
            "assurance": "loaded",
            "provenance": "unchanged",
            "device": "cpu",
        }
        proven |= {"verdict_validation_id": 1, "validated_at": tx.now, "validation_state": None}
        tx.execute(update(checkpoints).where(checkpoints.c.id == new.checkpoint.id).values(proven))
    answer = answer_resume_target(
        training.trainer.database, project_id=training.trainer.project_id, run="r", question=Question()
    )
    assert answer.choice.state is ResumeState.VALID
    assert answer.choice.target is not None
    assert answer.choice.target.id == new.checkpoint.id


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_the_same_request_told_again_is_the_same_however_late(training: Training, loss: Loss) -> None:
    _, told, old = _lost(training, loss)
    training.clock.advance(STEP_S)
    again_told = training.read_back(2)
    new = training.tell(again_told)
    for _ in range(2):
        shown = training.trainer.rows(checkpoints)
        for manifest, first in ((told, old), (again_told, new)):
            repeated = training.tell(manifest)
            assert (repeated.checkpoint.id, repeated.is_new) == (first.checkpoint.id, False)
            assert repeated.superseded == ()
        assert training.trainer.rows(checkpoints) == shown
        training.save(3, new.checkpoint.path)  # and once more, with the place lost to another save
    assert training.row(new).lifecycle == "superseded"


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_what_was_read_before_the_loss_is_no_save_after_it(training: Training, loss: Loss) -> None:
    first = training.save(1)
    old = training.save(2)
    training.clock.advance(STEP_S)
    read_before = training.read_back(2)
    loss(training, first, old)
    live = training.live()
    late = training.tell(read_before)
    assert (late.checkpoint.id, late.is_new, late.superseded) == (old.checkpoint.id, False, ())
    assert "it is no resume target" in late.notes[0]
    assert training.live() == live


def test_bytes_that_are_read_again_where_they_stand_are_the_same_save(training: Training) -> None:
    done = training.save(2)
    assert training.save(2).checkpoint.id == done.checkpoint.id
    assert training.live() == [done.checkpoint.id]


def test_it_happens_as_often_as_the_run_goes_back(training: Training) -> None:
    first = training.save(1)
    told, done = [], []
    for _ in range(4):
        training.clock.advance(STEP_S)
        told.append(training.read_back(2))
        done.append(training.tell(told[-1]))
        training.resume(first.checkpoint.id)
    assert [each.is_new for each in done] == [True] * 4
    assert len({each.checkpoint.id for each in done}) == 4
    assert [training.tell(manifest).checkpoint.id for manifest in told] == [
        each.checkpoint.id for each in done
    ]
    assert training.live() == [first.checkpoint.id]


def test_the_same_bytes_in_another_folder_are_one_too(training: Training) -> None:
    _, _, old = _lost(training, roll_back)
    with pytest.raises(ConflictError, match="/location: stored"):
        training.tell(training.read_back(2, created_at=old.checkpoint.created_at), "attempt-2/step-2")
    new = training.save(2, "attempt-2/step-2")
    assert (new.is_new, new.checkpoint.lifecycle) == (True, "registered")
    assert training.row(old).superseded_by == "rolled_back", "its own bytes are there, for whoever names it"


def test_an_announced_save_is_a_new_one_though_its_writers_clock_is_behind(training: Training) -> None:
    _, told, old = _lost(training, roll_back)
    training.clock.advance(STEP_S)
    announced = training.trainer.announce(2)
    late = training.tell(told)
    assert (late.checkpoint.id, late.is_new) == (old.checkpoint.id, False)
    assert training.row(late).superseded_by == "rewritten"
    behind = training.read_back(2, created_at=training.clock.now() - timedelta(seconds=5))
    new = training.tell(behind)
    assert (new.checkpoint.id, new.checkpoint.lifecycle) == (announced.checkpoint.id, "registered")
    assert (new.checkpoint.save_id, new.is_new) == (told.save_id, True)
    again = training.tell(behind)
    assert (again.checkpoint.id, again.is_new) == (new.checkpoint.id, False)


def test_a_save_id_that_its_writer_gave_names_one_save(training: Training) -> None:
    first = training.save(1)
    old = training.save(2, save_id="mine")
    training.resume(first.checkpoint.id)
    again = training.save(2, save_id="mine")
    assert (again.checkpoint.id, again.is_new) == (old.checkpoint.id, False)
    assert again.checkpoint.superseded_by == "rolled_back"


def test_parts_share_a_save_id_that_is_not_of_their_content(training: Training) -> None:
    first = training.save(1)
    parts: dict[str, Any] = {"save_id": "c-given", "parts": ("m", "o")}
    for part in parts["parts"]:
        old = training.save(2, part=part, **parts)
    training.resume(first.checkpoint.id)
    again = training.save(2, part="m", **parts)
    assert (again.checkpoint.id, again.is_new) == (old.checkpoint.id, False)


@pytest.mark.parametrize("created_at", [None, FakeClock().now() + timedelta(days=1)])
def test_without_a_manifest_a_time_is_needed_to_be_a_new_one(
    training: Training, created_at: datetime | None
) -> None:
    first = training.save(1)
    old = training.trainer.register(
        2, save_id="c-given", described=Described(created_at=training.clock.now(), num_files=3)
    )
    training.resume(first.checkpoint.id)
    described = Described(created_at=created_at, num_files=3)
    again = training.trainer.register(2, save_id="c-given", described=described)
    assert again.is_new == (created_at is not None)
    assert (again.checkpoint.id == old.checkpoint.id) == (created_at is None)


def test_holds_stay_with_the_save_that_they_were_set_on(training: Training) -> None:
    first = training.save(1)
    old = training.save(2)
    hold_checkpoint(
        training.trainer.services,
        project_id=training.trainer.project_id,
        checkpoint_id=old.checkpoint.id,
        hold=Hold.QUARANTINED,
        reason="x",
        actor=SERVICE,
    )
    training.resume(first.checkpoint.id)
    new = training.save(2)
    assert (training.row(old).is_quarantined, training.row(new).is_quarantined) == (True, False)


def test_eight_that_tell_of_it_at_once_make_one(training: Training) -> None:
    _, _, old = _lost(training, roll_back)
    training.clock.advance(STEP_S)
    told, start = training.read_back(2), threading.Barrier(8)

    def once(_: int) -> Registered:
        start.wait(10)
        return training.tell(told)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(once, range(8)))
    assert len({each.checkpoint.id for each in done}) == 1
    assert sum(each.is_new for each in done) == 1
    assert done[0].checkpoint.id != old.checkpoint.id

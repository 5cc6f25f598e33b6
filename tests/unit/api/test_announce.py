"""An announcement: expected, kept alive, given up in silence; and the save that comes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from ckptguard.errors import ConflictError, InvalidRequestError, LocationRefusedError
from ckptguard.model.service import EventKind, Lifecycle
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Announcement
from ckptguard_api.tables import branches, checkpoints, runs, validations
from ckptguard_api.use_cases.announce import announce, mark_incomplete
from tests.databases import fresh_database
from tests.registrations import Trainer, at, described


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that only the test moves."""
    return FakeClock()


@pytest.fixture(params=["sqlite", "postgresql"])
def trainer(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Trainer]:
    """Return a training job over an empty database, on both kinds."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    with fresh_database(request.param, folder=tmp_path, postgres=server, clock=clock) as database:
        yield Trainer(database=database)


def _give_up(trainer: Trainer, limit: int = 100) -> int:
    with trainer.database.write() as tx:
        return mark_incomplete(tx, limit=limit)


def test_what_is_announced_is_known_and_not_validated(trainer: Trainer, clock: FakeClock) -> None:
    done = trainer.announce(5, keep_alive_s=60)
    row = trainer.checkpoint(done.checkpoint.id)
    assert (done.is_new, row.lifecycle, row.branch, row.registered_at) == (True, "announced", 0, None)
    assert row.save_id.startswith("announced-")
    assert (row.keep_alive_until - clock.now()).total_seconds() == 60
    assert (trainer.count(runs), trainer.count(validations)) == (1, 0)
    assert trainer.kinds(row.id) == [EventKind.CHECKPOINT_ANNOUNCED]


def test_said_again_it_is_kept_alive_and_told_once(trainer: Trainer, clock: FakeClock) -> None:
    first = trainer.announce(5)
    clock.advance(500)
    again = trainer.announce(5)
    assert (again.is_new, again.checkpoint.id) == (False, first.checkpoint.id)
    clock.advance(500)
    assert _give_up(trainer) == 0
    by_id = trainer.announce(5, save_id=first.checkpoint.save_id)
    assert by_id.checkpoint.id == first.checkpoint.id
    assert trainer.kinds(first.checkpoint.id) == [EventKind.CHECKPOINT_ANNOUNCED]


def test_in_silence_it_is_given_up_once(trainer: Trainer, clock: FakeClock) -> None:
    done = trainer.announce(5, keep_alive_s=60)
    clock.advance(59)
    assert _give_up(trainer) == 0
    clock.advance(1)
    before = trainer.revision()
    assert [_give_up(trainer), _give_up(trainer)] == [1, 0]
    row = trainer.checkpoint(done.checkpoint.id)
    assert (row.lifecycle, row.keep_alive_until) == ("incomplete", None)
    assert trainer.revision() == before + 1
    assert trainer.kinds(row.id) == [EventKind.CHECKPOINT_ANNOUNCED, EventKind.CHECKPOINT_INCOMPLETE]


def test_no_call_gives_up_more_than_its_limit_and_the_oldest_come_first(
    trainer: Trainer, clock: FakeClock
) -> None:
    done = [trainer.announce(step, run=f"r{step % 2}", keep_alive_s=60 - step) for step in range(5)]
    clock.advance(100)
    assert [_give_up(trainer, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    order = [row.id for row in trainer.rows(checkpoints)]
    assert order == [each.checkpoint.id for each in done]


def test_an_announcement_becomes_the_save(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    done = trainer.register(5)
    assert done.is_new
    assert done.checkpoint.id == announced.checkpoint.id
    assert (done.checkpoint.save_id, done.checkpoint.lifecycle) == ("save-5", Lifecycle.REGISTERED)
    assert done.checkpoint.keep_alive_until is None
    assert done.superseded == ()
    assert trainer.count(checkpoints) == 1


def test_an_announcement_with_a_save_id_becomes_the_save_of_that_id(trainer: Trainer) -> None:
    announced = trainer.announce(5, save_id="save-5")
    assert trainer.register(5).checkpoint.id == announced.checkpoint.id


def test_another_save_at_the_announced_place_supersedes_the_announcement(trainer: Trainer) -> None:
    announced = trainer.announce(5, save_id="mine")
    done = trainer.register(5)
    assert done.checkpoint.id != announced.checkpoint.id
    assert done.superseded == (announced.checkpoint.id,)


def test_a_save_that_comes_after_it_was_given_up_is_registered(trainer: Trainer, clock: FakeClock) -> None:
    announced = trainer.announce(5, keep_alive_s=60)
    clock.advance(61)
    _give_up(trainer)
    done = trainer.register(5)
    assert (done.checkpoint.id, done.checkpoint.lifecycle) == (announced.checkpoint.id, Lifecycle.REGISTERED)
    assert done.validation is not None


def test_what_was_given_up_can_be_announced_again(trainer: Trainer, clock: FakeClock) -> None:
    first = trainer.announce(5, keep_alive_s=60)
    clock.advance(61)
    _give_up(trainer)
    again = trainer.announce(5)
    assert (again.is_new, again.checkpoint.id, again.checkpoint.lifecycle) == (
        True,
        first.checkpoint.id,
        Lifecycle.ANNOUNCED,
    )


def test_announcing_a_place_supersedes_what_stands_there(trainer: Trainer) -> None:
    old = trainer.register(5, "x/a")
    for place in ("x/a", "x", "x/a/b"):
        standing = [row.id for row in trainer.rows(checkpoints) if row.lifecycle != "superseded"]
        assert trainer.announce(6, place).superseded == tuple(standing)
    row = trainer.checkpoint(old.checkpoint.id)
    assert (row.lifecycle, row.superseded_by, row.validation_state) == ("superseded", "rewritten", None)
    assert [each.state for each in trainer.rows(validations)] == ["cancelled"]


def test_the_same_step_announced_again_supersedes_the_save_before(trainer: Trainer) -> None:
    old = trainer.register(5)
    new = trainer.announce(5)
    assert new.is_new
    assert new.superseded == (old.checkpoint.id,)


def test_a_late_sign_of_life_does_not_harm_the_save_that_came_of_it(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    done = trainer.register(5)
    before = trainer.revision()
    late = trainer.announce(5, save_id=announced.checkpoint.save_id)
    assert (late.is_new, late.superseded, late.checkpoint.id) == (False, (), done.checkpoint.id)
    late = trainer.announce(5, save_id="save-5")
    assert (late.is_new, late.superseded, late.checkpoint.id) == (False, (), done.checkpoint.id)
    assert trainer.checkpoint(done.checkpoint.id).lifecycle == "registered"
    assert trainer.revision() == before


def test_a_late_sign_of_life_does_not_take_a_place_back(trainer: Trainer) -> None:
    announced = trainer.announce(5, "a")
    newer = trainer.register(6, "a")
    with pytest.raises(ConflictError, match="superseded: another save"):
        trainer.announce(5, "a", save_id=announced.checkpoint.save_id)
    assert trainer.checkpoint(newer.checkpoint.id).lifecycle == "registered"


def test_a_late_sign_of_life_does_not_bring_back_what_the_run_left(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    with trainer.database.write() as tx:  # the run goes on from an earlier step, as `resume` reports
        values = {"lifecycle": "superseded", "superseded_by": "rolled_back", "keep_alive_until": None}
        tx.execute(update(checkpoints).values(values))
        tx.execute(update(runs).values(branch=1))
    before, revision = trainer.checkpoint(announced.checkpoint.id), trainer.revision()
    late = trainer.announce(5, save_id=announced.checkpoint.save_id)
    assert (late.is_new, late.superseded) == (False, ())
    assert (trainer.checkpoint(before.id), trainer.revision()) == (before, revision)


def test_a_late_sign_of_life_of_what_was_given_up_stays_in_its_branch(
    trainer: Trainer, clock: FakeClock
) -> None:
    announced, later = trainer.announce(5, keep_alive_s=60), trainer.register(6)
    clock.advance(60)
    _give_up(trainer)
    with trainer.database.write() as tx:
        origin = {"from_checkpoint_id": later.checkpoint.id, "from_step": 6, "opened_by": "resume"}
        opened = {"run_id": later.checkpoint.run_id, "number": 1, "opened_at": tx.now, **origin}
        tx.execute(insert(branches).values(opened))
        tx.execute(update(runs).values(branch=1))
    late = trainer.announce(5, save_id=announced.checkpoint.save_id)
    assert (late.checkpoint.lifecycle, late.checkpoint.branch) == (Lifecycle.ANNOUNCED, 0)


def test_a_shorter_time_to_keep_alive_is_a_change_of_the_run(trainer: Trainer) -> None:
    trainer.announce(5, keep_alive_s=600)
    before = trainer.revision()
    trainer.announce(5, keep_alive_s=900)
    assert trainer.revision() == before, "answers stay right until the time that they know"
    trainer.announce(5, keep_alive_s=60)
    assert trainer.revision() > before, "an answer that waits for it would stay for too long"


def test_a_save_that_is_kept_alive_after_its_time_is_a_change_of_the_run(
    trainer: Trainer, clock: FakeClock
) -> None:
    trainer.announce(5, keep_alive_s=60)
    before = trainer.revision()
    clock.advance(60)
    trainer.announce(5, keep_alive_s=60)
    assert trainer.revision() > before, "an answer that nothing can come would stay"


def test_a_new_announcement_takes_its_place_back(trainer: Trainer) -> None:
    announced = trainer.announce(5, "a")
    newer = trainer.register(6, "a")
    again = trainer.announce(5, "a")
    assert (again.is_new, again.checkpoint.id) == (True, announced.checkpoint.id)
    assert again.superseded == (newer.checkpoint.id,)


def test_a_superseded_announcement_whose_save_comes_all_the_same_is_registered(trainer: Trainer) -> None:
    announced = trainer.announce(5, "a")
    newer = trainer.announce(6, "a")
    done = trainer.register(5, "a")
    assert (done.checkpoint.id, done.superseded) == (announced.checkpoint.id, (newer.checkpoint.id,))
    assert (done.checkpoint.lifecycle, done.checkpoint.superseded_by) == (Lifecycle.REGISTERED, None)


def test_a_save_id_stands_for_one_place_and_one_save(trainer: Trainer) -> None:
    trainer.announce(5, "a", save_id="s")
    with pytest.raises(ConflictError, match=r"/location: stored .*/a, now .*/b"):
        trainer.announce(5, "b", save_id="s")
    trainer.register(5, "a", save="s")
    trainer.register(6, "a")
    with pytest.raises(ConflictError, match="a new save needs another save id"):
        trainer.announce(5, "a", save_id="s")


def test_the_last_save_of_a_job_that_was_given_up_stays_rolled_back(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    with trainer.database.write() as tx:  # the run goes on from an earlier step, as `resume` reports
        values = {"lifecycle": "superseded", "superseded_by": "rolled_back", "keep_alive_until": None}
        tx.execute(update(checkpoints).values(values))
        tx.execute(update(runs).values(branch=1))
    done = trainer.register(5)
    assert done.checkpoint.id == announced.checkpoint.id
    assert (done.checkpoint.branch, done.checkpoint.lifecycle) == (0, Lifecycle.SUPERSEDED)
    assert "superseded (rolled_back)" in done.notes[0]


def test_the_job_that_goes_on_announces_the_step_in_its_own_branch(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    with trainer.database.write() as tx:
        values = {"lifecycle": "superseded", "superseded_by": "rolled_back", "keep_alive_until": None}
        tx.execute(update(checkpoints).values(values))
        tx.execute(update(runs).values(branch=1))
    again = trainer.announce(5)
    assert (again.is_new, again.checkpoint.id, again.checkpoint.branch) == (True, announced.checkpoint.id, 1)
    assert again.checkpoint.lifecycle == Lifecycle.ANNOUNCED
    assert trainer.register(5).checkpoint.branch == 1


def test_a_registration_without_manifest_takes_the_announcement_over_too(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    done = trainer.register(5, described=described(num_files=3))
    assert done.checkpoint.id == announced.checkpoint.id
    assert done.checkpoint.save_id.startswith("c-")


def test_a_bad_announcement_stores_nothing(trainer: Trainer) -> None:
    with pytest.raises(InvalidRequestError, match="has no branch 1"):
        trainer.announce(5, branch=1)
    request = Announcement(run="r", step=5, location=AskedLocation(url="/elsewhere/x"))
    with pytest.raises(LocationRefusedError, match="--store NAME=/elsewhere"):
        announce(trainer.services, request, project_id=trainer.project_id, actor=trainer.actor)
    with pytest.raises(InvalidRequestError) as raised:
        Announcement(run="a/b", step=-1, location=at("a"), save_id="", keep_alive_s=0.0)
    assert len(raised.value.problems) == 4
    assert (trainer.count(runs), trainer.count(checkpoints)) == (0, 0)

"""A registration: the same again is the same, other content is a conflict, and nothing is half stored."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, select

from ckptguard.errors import (
    ConflictError,
    InvalidRequestError,
    LocationRefusedError,
    ServiceUnavailableError,
    TooLargeError,
)
from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.manifest import Manifest, Origin, identity
from ckptguard.model.policy import Depth
from ckptguard.model.service import EventKind, Lifecycle
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.locations import AskedLocation
from ckptguard_api.domain.registration import Registration
from ckptguard_api.tables import branches, checkpoints, events, manifests, parts, runs, validations
from ckptguard_api.use_cases.history import show_manifest
from ckptguard_api.use_cases.register import Registered, register
from tests.registrations import ROOT, SAVED_AT, Trainer, at, described, saved

TABLES = (checkpoints, parts, manifests, validations, runs, branches)


@pytest.fixture
def trainer(database: Database) -> Trainer:
    """Return a training job over an empty database, on both kinds."""
    return Trainer(database=database)


def _sizes(trainer: Trainer) -> list[int]:
    return [trainer.count(table) for table in (*TABLES, events)]


# What is stored


def test_a_registration_is_all_there_and_queued(trainer: Trainer) -> None:
    done = trainer.register(5, content=b"12345", depth=Depth.CONTENT)
    row = trainer.checkpoint(done.checkpoint.id)
    assert done.is_new
    assert (row.step, row.save_id, row.branch, row.lifecycle) == (5, "save-5", 0, "registered")
    assert (row.path, row.location) == ("r/step-5", f"{ROOT}/r/step-5")
    assert (row.format, row.num_files, row.bytes_total, row.expected_parts) == ("dcp", 2, 6, [""])
    assert row.created_at == SAVED_AT + timedelta(minutes=5)
    assert row.registered_at is not None
    assert done.validation is not None
    assert (done.validation.state, done.validation.depth, row.validation_state) == (
        "queued",
        "content",
        "queued",
    )
    assert (done.checkpoint.run, done.checkpoint.store) == ("r", "demo")


def test_the_first_registration_makes_the_run(trainer: Trainer) -> None:
    trainer.register(5)
    (run,) = trainer.rows(runs)
    assert (run.name, run.min_assurance, run.numerics, run.min_steps, run.branch) == (
        "r",
        "loaded",
        "report",
        20,
        0,
    )
    assert [branch.number for branch in trainer.rows(branches)] == [0]
    trainer.register(6)
    assert trainer.count(runs) == 1
    assert trainer.kinds().count(EventKind.RUN_CREATED) == 1


def test_every_registration_raises_the_revision_of_its_run(trainer: Trainer) -> None:
    trainer.register(5)
    before = trainer.revision()
    trainer.register(6)
    assert trainer.revision() > before


def test_the_audit_tells_of_it(trainer: Trainer) -> None:
    done = trainer.register(5)
    assert trainer.kinds() == [
        EventKind.STORE_CHANGED,
        EventKind.RUN_CREATED,
        EventKind.CHECKPOINT_REGISTERED,
        EventKind.VALIDATION_QUEUED,
    ]
    (told,) = [row for row in trainer.rows(events) if row.kind == EventKind.CHECKPOINT_REGISTERED]
    assert told.checkpoint_id == done.checkpoint.id
    assert told.data["identity"] == str(identity(saved("r", 5, save="save-5")))


def test_the_manifest_comes_back_as_it_was(trainer: Trainer) -> None:
    manifest = saved("r", 5, part=None)
    full = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
    full |= {
        "annotations": {"a": [1, 2.5, None, "\u0000 \U0001f600"], "big": 2**53 - 1},
        "fingerprints": {"config": "sha256:1"},
        "unknown_fields": {"later": {"x": True}},
    }
    manifest = Manifest(**full)
    done = trainer.register(5, manifest=manifest)
    text = show_manifest(
        trainer.services, project_id=trainer.project_id, checkpoint_id=done.checkpoint.id, part=None
    )
    assert parse_manifest(text) == manifest


def test_equal_entries_are_stored_once(trainer: Trainer) -> None:
    trainer.register(5)
    trainer.register(6)
    assert trainer.count(manifests) == 1
    assert {part.manifest_id for part in trainer.rows(parts)} == {trainer.rows(manifests)[0].id}


def test_only_a_manifest_of_the_save_comes_from_the_writer(trainer: Trainer) -> None:
    trainer.register(5)
    trainer.register(6, manifest=saved("r", 6, origin=Origin.READ_BACK))
    trainer.register(7, described=described())
    assert [part.is_from_writer for part in trainer.rows(parts)] == [True, False, False]


def test_without_manifest_what_is_described_is_kept(trainer: Trainer) -> None:
    done = trainer.register(5, described=described(format="dcp", num_files=3, bytes_total=99))
    row = trainer.checkpoint(done.checkpoint.id)
    assert row.save_id.startswith("c-")
    assert (row.format, row.num_files, row.bytes_total, row.created_at) == ("dcp", 3, 99, SAVED_AT)
    (part,) = trainer.rows(parts)
    assert (part.name, part.manifest_id, part.identity, part.header) == ("", None, None, None)


def test_without_manifest_and_save_id_the_time_tells_two_saves_apart(trainer: Trainer) -> None:
    first = trainer.register(5, "a", described=described())
    again = trainer.register(5, "a", described=described())
    later = trainer.register(5, "a", described=described(created_at=SAVED_AT + timedelta(seconds=1)))
    assert again.checkpoint.id == first.checkpoint.id
    assert later.checkpoint.id != first.checkpoint.id
    assert later.superseded == (first.checkpoint.id,)
    with pytest.raises(InvalidRequestError, match="/created_at: needed"):
        Registration(run="r", step=5, location=at("a"))


def test_nothing_is_queued_where_nobody_wants_it_and_it_can_be_asked_for_later(trainer: Trainer) -> None:
    first = trainer.register(5, is_validated=False)
    assert (first.validation, trainer.count(validations)) == (None, 0)
    again = trainer.register(5)
    assert not again.is_new
    assert again.validation is not None


# The same again


def test_the_same_again_is_the_same_and_changes_nothing(trainer: Trainer) -> None:
    first = trainer.register(5)
    before = (_sizes(trainer), trainer.revision())
    again = trainer.register(5)
    assert (again.is_new, again.superseded) == (False, ())
    assert again.checkpoint.id == first.checkpoint.id
    assert again.validation is not None
    assert first.validation is not None
    assert again.validation.id == first.validation.id
    assert (_sizes(trainer), trainer.revision()) == before


def test_the_same_again_stays_the_same_after_a_newer_save_took_its_place(trainer: Trainer) -> None:
    first = trainer.register(5, "latest")
    newer = trainer.register(6, "latest")
    again = trainer.register(5, "latest")
    assert (again.checkpoint.id, again.is_new) == (first.checkpoint.id, False)
    assert again.checkpoint.lifecycle == Lifecycle.SUPERSEDED
    assert "superseded (rewritten)" in again.notes[0]
    assert trainer.checkpoint(newer.checkpoint.id).lifecycle == Lifecycle.REGISTERED


def test_a_read_back_of_the_same_bytes_is_the_same(trainer: Trainer) -> None:
    trainer.register(5, manifest=saved("r", 5))
    again = trainer.register(5, manifest=saved("r", 5, origin=Origin.READ_BACK))
    assert (again.is_new, again.notes) == (False, ())
    assert trainer.rows(parts)[0].is_from_writer


@pytest.mark.parametrize("first", ["described", "read back"])
def test_the_writers_manifest_counts_although_somebody_was_faster(trainer: Trainer, first: str) -> None:
    manifest = saved("r", 5)
    if first == "described":
        before = trainer.register(5, described=described(created_at=manifest.created_at), save_id="save-1")
    else:
        before = trainer.register(5, manifest=saved("r", 5, origin=Origin.READ_BACK))
    after = trainer.register(5, manifest=manifest)
    assert after.checkpoint.id == before.checkpoint.id
    (part,) = trainer.rows(parts)
    assert (part.is_from_writer, part.identity) == (True, str(identity(manifest)))
    assert before.validation is not None
    assert after.validation is not None
    states = {row.id: row.state for row in trainer.rows(validations)}
    assert states == {before.validation.id: "cancelled", after.validation.id: "queued"}


def test_eight_at_once_make_one(trainer: Trainer) -> None:
    start = threading.Barrier(8)

    def once(_: int) -> Registered:
        start.wait(10)
        return trainer.register(5)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(once, range(8)))
    assert len({each.checkpoint.id for each in done}) == 1
    assert len({each.validation.id for each in done if each.validation is not None}) == 1
    assert sum(each.is_new for each in done) == 1
    assert [trainer.count(table) for table in TABLES] == [1] * len(TABLES)


# Conflicts


def test_other_content_under_the_same_key_is_a_conflict_that_tells_both(trainer: Trainer) -> None:
    trainer.register(5, content=b"one")
    before = _sizes(trainer)
    with pytest.raises(ConflictError) as raised:
        trainer.register(5, content=b"two")
    for content in (b"one", b"two"):
        assert str(identity(saved("r", 5, save="save-5", content=content))) in str(raised.value)
    assert _sizes(trainer) == before


def test_another_location_under_the_same_key_is_a_conflict_that_tells_both(trainer: Trainer) -> None:
    trainer.register(5, "here")
    before = _sizes(trainer)
    with pytest.raises(ConflictError) as raised:
        trainer.register(5, "there", content=b"two")
    assert f"stored {ROOT}/here, now {ROOT}/there" in str(raised.value)
    assert len(raised.value.problems) == 2
    assert _sizes(trainer) == before


@pytest.mark.parametrize("fact", [{"format": "other"}, {"num_files": 9}, {"bytes_total": 9}])
def test_a_description_that_contradicts_what_is_stored_is_a_conflict(
    trainer: Trainer, fact: dict[str, Any]
) -> None:
    trainer.register(5)
    made_at = SAVED_AT + timedelta(minutes=5)
    same = trainer.register(5, save_id="save-5", described=described(created_at=made_at))
    assert not same.is_new
    with pytest.raises(ConflictError, match=next(iter(fact))):
        trainer.register(5, save_id="save-5", described=described(created_at=made_at, **fact))


def test_the_same_save_of_another_run_step_or_project_is_another_checkpoint(
    trainer: Trainer, database: Database
) -> None:
    other = Trainer(database=database, project="other")
    done = [
        trainer.register(5, save="s"),
        trainer.register(6, save="s"),
        trainer.register(5, save="s", run="r2"),
        other.register(5, save="s"),
    ]
    assert len({each.checkpoint.id for each in done}) == 4
    assert all(not each.superseded for each in done)


# Bad input


def test_what_manifest_and_request_disagree_about_is_all_told() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        Registration(
            run="other",
            step=6,
            location=at("a"),
            save_id="mine",
            manifest=saved("r", 5),
            described=described(format="dcp"),
        )
    places = [problem.partition(":")[0] for problem in raised.value.problems]
    assert places == ["/manifest/run", "/manifest/step", "/manifest/save_id", "/format", "/created_at"]


def test_an_unknown_branch_is_refused_and_no_run_is_made(trainer: Trainer) -> None:
    with pytest.raises(InvalidRequestError, match="has no branch 3"):
        trainer.register(5, branch=3)
    assert trainer.count(runs) == 0


def test_a_location_outside_every_store_stores_nothing(trainer: Trainer) -> None:
    before = _sizes(trainer)
    request = Registration(run="r", step=5, location=AskedLocation(url="/etc/x"), manifest=saved("r", 5))
    with pytest.raises(LocationRefusedError, match="--store NAME=/etc"):
        register(trainer.services, request, project_id=trainer.project_id, actor=SERVICE)
    assert _sizes(trainer) == before


def test_annotations_are_no_place_for_data(trainer: Trainer) -> None:
    full = {name: getattr(saved("r", 5), name) for name in Manifest.__dataclass_fields__}
    with pytest.raises(TooLargeError, match="beside files and items"):
        trainer.register(5, manifest=Manifest(**(full | {"annotations": {"a": "x" * (1 << 20)}})))


def test_a_time_ahead_of_the_service_is_noted(trainer: Trainer) -> None:
    trainer.database.clock = FakeClock()
    done = trainer.register(5, described=described(created_at=SAVED_AT + timedelta(hours=2)))
    assert done.notes == ("created_at is 2:00:00 ahead of the service's clock",)


@pytest.mark.parametrize("last", ["INSERT INTO events", "INSERT INTO validations", "INSERT INTO parts"])
def test_nothing_is_half_stored_where_the_database_fails(trainer: Trainer, last: str) -> None:
    older = trainer.register(1, "a")
    before = (_sizes(trainer), trainer.checkpoint(older.checkpoint.id), trainer.revision())

    def break_it(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith(last):
            connection.exec_driver_sql("SELECT * FROM no_such_table")

    _with_listener(trainer.database, break_it, lambda: _refused(trainer))
    assert (_sizes(trainer), trainer.checkpoint(older.checkpoint.id), trainer.revision()) == before
    assert trainer.register(2, "a").superseded == (older.checkpoint.id,)


def _with_listener(database: Database, listener: Callable[..., None], act: Callable[[], None]) -> None:
    event.listen(database.engine, "before_cursor_execute", listener)
    try:
        act()
    finally:
        event.remove(database.engine, "before_cursor_execute", listener)


def _refused(trainer: Trainer) -> None:
    with pytest.raises(ServiceUnavailableError):
        trainer.register(2, "a")


# A run that goes back


def test_a_step_that_goes_back_without_a_word_is_told_once(trainer: Trainer) -> None:
    trainer.register(100)
    trainer.register(110)
    back = described(created_at=SAVED_AT + timedelta(days=1))
    trainer.register(105, described=back)
    trainer.register(106, "b", described=back)
    (run,) = trainer.rows(runs)
    assert run.step_went_back_at is not None
    assert trainer.kinds().count(EventKind.RUN_STEP_WENT_BACK) == 1


def test_a_save_that_is_registered_late_is_no_step_back(trainer: Trainer) -> None:
    trainer.register(110)
    trainer.register(100)  # made before, as its manifest says
    assert trainer.rows(runs)[0].step_went_back_at is None


def test_saves_are_in_the_branch_that_is_current_or_asked_for(trainer: Trainer) -> None:
    first = trainer.register(5)
    with trainer.database.write() as tx:
        tx.execute(branches.insert().values(run_id=first.checkpoint.run_id, number=1, opened_at=tx.now,
                   opened_by="test", from_checkpoint_id=first.checkpoint.id, from_step=5))  # fmt: skip
        tx.execute(runs.update().values(branch=1))
    assert trainer.register(6).checkpoint.branch == 1
    on_the_way = trainer.register(4, branch=0).checkpoint
    beyond = trainer.register(7, branch=0).checkpoint
    assert (on_the_way.branch, on_the_way.lifecycle) == (0, "registered")
    assert (beyond.branch, beyond.lifecycle, beyond.superseded_by) == (0, "superseded", "rolled_back")
    with trainer.database.read() as tx:
        open_of = select(validations.c.checkpoint_id).where(validations.c.state == "queued")
        assert beyond.id in tx.execute(open_of).scalars().all()

"""A save takes the place of what stood at its location, above it and below it; of nothing else."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert, select, text, update

from ckptguard.errors import ConflictError
from ckptguard.model.service import EventKind, Lifecycle
from ckptguard_api.database import Database
from ckptguard_api.repositories.checkpoints import standing_in
from ckptguard_api.tables import checkpoints, events, validations
from ckptguard_api.use_cases.superseding import MAX_SUPERSEDED
from tests.registrations import ROOT, Trainer


@pytest.fixture
def trainer(database: Database) -> Trainer:
    """Return a training job over an empty database, on both kinds."""
    return Trainer(database=database)


def _standing(trainer: Trainer) -> set[str]:
    return {row.path for row in trainer.rows(checkpoints) if row.lifecycle != "superseded"}


@pytest.mark.parametrize("place", ["a/b", "a", "a/b/c", "a/b/c/d/e"])
def test_a_save_at_above_or_below_supersedes(trainer: Trainer, place: str) -> None:
    old = trainer.register(1, "a/b")
    new = trainer.register(2, place, run="other")
    row = trainer.checkpoint(old.checkpoint.id)
    assert new.superseded == (row.id,)
    assert (row.lifecycle, row.superseded_by, row.validation_state) == ("superseded", "rewritten", None)
    assert [each.state for each in trainer.rows(validations)] == ["cancelled", "queued"]
    assert trainer.kinds(row.id)[-2:] == [EventKind.CHECKPOINT_SUPERSEDED, EventKind.VALIDATION_CANCELLED]


# Names that a careless comparison takes for one another: prefixes, wildcards, case, order of characters.
NEIGHBOURS = [
    "step-1",
    "step-10",
    "step-1.bak",
    "step-1 ",
    "step-1!",
    "step-1-",
    "step-11/x",
    "Step-1",
    "STEP-1",
    "step_1",
    "step%1",
    "step-%",
    "%",
    "_",
    "step-1\u00e9",
    "step-1\U0001f600",
    "st\u00e9p-1",
    "ste\u0301p-1",
]


def test_neighbours_never_supersede_one_another(trainer: Trainer) -> None:
    for step, place in enumerate(NEIGHBOURS):
        assert trainer.register(step, f"r/{place}").superseded == (), place
    assert _standing(trainer) == {f"r/{place}" for place in NEIGHBOURS}


def test_each_neighbour_is_found_at_its_own_place_and_from_above(trainer: Trainer) -> None:
    for step, place in enumerate(NEIGHBOURS):
        trainer.register(step, f"r/{place}")
    for step, place in enumerate(NEIGHBOURS):
        assert len(trainer.register(100 + step, f"r/{place}").superseded) == 1, place
    assert len(trainer.register(1000, "r").superseded) == len(NEIGHBOURS)
    assert _standing(trainer) == {"r"}


def test_a_closing_slash_is_the_same_place(trainer: Trainer) -> None:
    first = trainer.register(1, "a/b/")
    assert trainer.register(2, "a/b").superseded == (first.checkpoint.id,)


def test_the_same_step_saved_elsewhere_is_not_superseded(trainer: Trainer) -> None:
    trainer.register(1, "a")
    assert trainer.register(1, "b", save="again").superseded == ()


def test_other_projects_are_not_touched(trainer: Trainer, database: Database) -> None:
    other = Trainer(database=database, project="other")
    other.register(1, "a")
    assert trainer.register(1, "a").superseded == ()


def test_what_was_rolled_back_is_rewritten_too(trainer: Trainer) -> None:
    old = trainer.register(1, "a")
    with trainer.database.write() as tx:
        tx.execute(update(checkpoints).values(lifecycle="superseded", superseded_by="rolled_back"))
    assert trainer.register(2, "a").superseded == (old.checkpoint.id,)
    assert trainer.checkpoint(old.checkpoint.id).superseded_by == "rewritten"


def test_what_is_deleted_or_rewritten_is_left_alone(trainer: Trainer) -> None:
    trainer.register(1, "a")
    second = trainer.register(2, "a")
    with trainer.database.write() as tx:
        deleted = update(checkpoints).where(checkpoints.c.id == second.checkpoint.id)
        tx.execute(deleted.values(lifecycle=Lifecycle.DELETED.value))
    assert trainer.register(3, "a").superseded == ()


def test_a_verdict_and_holds_stay_as_they_are(trainer: Trainer) -> None:
    old = trainer.register(1, "a")
    with trainer.database.write() as tx:
        values = {"verdict": "VALID", "assurance": "loaded", "verdict_validation_id": 1, "is_pinned": True}
        tx.execute(update(checkpoints).values(values))
    trainer.register(2, "a")
    row = trainer.checkpoint(old.checkpoint.id)
    assert (row.lifecycle, row.verdict, row.assurance, row.is_pinned) == (
        "superseded",
        "VALID",
        "loaded",
        True,
    )


def test_every_run_concerned_learns_of_it(trainer: Trainer) -> None:
    trainer.register(1, "x/a", run="one")
    trainer.register(1, "x/b", run="two")
    before = trainer.revision("one"), trainer.revision("two")
    told: list[frozenset[int]] = []
    trainer.database.commit_listeners.append(told.append)
    trainer.register(1, "x", run="three")
    assert trainer.revision("one") > before[0]
    assert trainer.revision("two") > before[1]
    assert [len(runs) for runs in told] == [3]


def test_the_audit_says_by_which_save(trainer: Trainer) -> None:
    trainer.register(1, "a/b")
    new = trainer.register(2, "a")
    (told,) = [row for row in trainer.rows(events) if row.kind == EventKind.CHECKPOINT_SUPERSEDED]
    assert told.data == {
        "superseded_by": "rewritten",
        "by_checkpoint": new.checkpoint.id,
        "location": f"{ROOT}/a",
    }


def test_overlapping_saves_of_different_runs_at_once_leave_exactly_one(trainer: Trainer) -> None:
    places = ["x", "x/a", "x/a/b", "x", "x/a", "x/a/b", "x", "x/a/b/c"]
    start = threading.Barrier(len(places))

    def save(number: int) -> None:
        start.wait(10)
        trainer.register(number, places[number], run=f"run-{number}")

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(save, range(len(places))))
    assert len(_standing(trainer)) == 1
    states = [row.state for row in trainer.rows(validations)]
    assert (states.count("queued"), states.count("cancelled")) == (1, len(places) - 1)


def test_a_location_named_too_high_up_does_nothing(trainer: Trainer) -> None:
    first = trainer.register(1, "many/0")
    copied = [column for column in checkpoints.c if column.name not in {"id", "save_id", "path", "location"}]
    with trainer.database.write() as tx:
        row = tx.execute(select(*copied)).one()._asdict()
        rows = [
            row | {"save_id": f"s{n}", "path": f"many/{n}", "location": f"{ROOT}/many/{n}"}
            for n in range(1, MAX_SUPERSEDED + 1)
        ]
        tx.execute(insert(checkpoints), rows)
    with pytest.raises(ConflictError, match="name the checkpoint's own folder"):
        trainer.register(2, "many")
    assert trainer.checkpoint(first.checkpoint.id).lifecycle == "registered"
    assert trainer.register(3, "many/7").superseded


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite always does
def test_places_are_compared_by_their_bytes_whatever_the_language_of_the_database(trainer: Trainer) -> None:
    query = "SELECT collation_name FROM information_schema.columns WHERE table_name = 'checkpoints'"
    with trainer.database.read() as tx:
        assert tx.execute(text(f"{query} AND column_name = 'location'")).scalar_one() == "C"


def test_places_are_found_by_the_index_however_often_they_were_rewritten(trainer: Trainer) -> None:
    trainer.register(1, "a")
    plans: list[str] = []
    with trainer.database.read() as tx:
        if tx.is_postgresql:
            tx.execute(text("SET LOCAL enable_seqscan = off"))  # of one row it would be right
        execute = tx.execute

        def explained(statement, parameters=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            compiled = statement.compile(tx.connection, compile_kwargs={"literal_binds": True})
            how = "EXPLAIN " if tx.is_postgresql else "EXPLAIN QUERY PLAN "
            plans.append(str(tx.connection.exec_driver_sql(how + str(compiled).replace("%", "%%")).all()))
            return execute(statement, parameters)

        tx.execute = explained  # type: ignore[method-assign]
        standing_in(tx, trainer.project_id, f"{ROOT}/a/b/c", limit=10)
    assert len(plans) == 2
    assert all("ix_checkpoints_project_location" in plan for plan in plans), plans

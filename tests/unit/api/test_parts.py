"""A save of several parts is registered when the last of them is there."""

import pytest

from ckptguard.errors import ConflictError, InvalidRequestError
from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.service import EventKind, Lifecycle
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_api.tables import checkpoints, parts, validations
from ckptguard_api.use_cases.announce import mark_incomplete
from ckptguard_api.use_cases.history import show_manifest
from ckptguard_api.use_cases.register import Registered
from tests.registrations import Trainer, saved

PARTS = ("model", "optimizer")


@pytest.fixture
def trainer(database: Database) -> Trainer:
    """Return a training job over an empty database, on both kinds."""
    return Trainer(database=database)


def _register(trainer: Trainer, part: str, *, save: str = "s", content: bytes = b"x") -> Registered:
    manifest = saved("r", 5, save=save, content=content, part=part, parts=PARTS)
    return trainer.register(5, manifest=manifest)


def test_it_waits_for_every_part(trainer: Trainer) -> None:
    first = _register(trainer, "model", content=b"12")
    assert (first.is_new, first.validation) == (True, None)
    assert first.checkpoint.lifecycle == Lifecycle.ANNOUNCED
    assert first.checkpoint.keep_alive_until is not None
    second = _register(trainer, "optimizer", content=b"345")
    assert second.checkpoint.id == first.checkpoint.id
    assert second.is_new
    assert second.validation is not None
    row = trainer.checkpoint(second.checkpoint.id)
    assert (row.lifecycle, row.keep_alive_until, sorted(row.expected_parts)) == (
        "registered",
        None,
        list(PARTS),
    )
    assert (row.num_files, row.bytes_total, row.format) == (4, 7, "dcp")
    assert trainer.kinds(row.id) == [
        EventKind.CHECKPOINT_ANNOUNCED,
        EventKind.CHECKPOINT_REGISTERED,
        EventKind.VALIDATION_QUEUED,
    ]


def test_a_part_again_is_the_same_before_and_after_it_is_complete(trainer: Trainer) -> None:
    _register(trainer, "model")
    assert not _register(trainer, "model").is_new
    _register(trainer, "optimizer")
    assert not _register(trainer, "model").is_new
    assert (trainer.count(checkpoints), trainer.count(parts), trainer.count(validations)) == (1, 2, 1)


def test_each_part_has_its_own_manifest(trainer: Trainer) -> None:
    _register(trainer, "model", content=b"m")
    done = _register(trainer, "optimizer", content=b"o")
    for part, content in (("model", b"m"), ("optimizer", b"o")):
        text = show_manifest(
            trainer.services, project_id=trainer.project_id, checkpoint_id=done.checkpoint.id, part=part
        )
        assert parse_manifest(text) == saved("r", 5, save="s", content=content, part=part, parts=PARTS)


def test_a_part_with_other_content_is_a_conflict(trainer: Trainer) -> None:
    _register(trainer, "model", content=b"m")
    with pytest.raises(ConflictError, match="part 'model' exists with other content"):
        _register(trainer, "model", content=b"n")


def test_parts_that_expect_other_parts_are_a_conflict(trainer: Trainer) -> None:
    _register(trainer, "model")
    with pytest.raises(ConflictError, match="/manifest/parts"):
        trainer.register(5, manifest=saved("r", 5, save="s", part="ema", parts=("model", "ema")))
    with pytest.raises(ConflictError, match="/manifest/parts"):
        trainer.register(5, manifest=saved("r", 5, save="s"))


def test_another_save_at_the_same_place_does_not_take_over_parts(trainer: Trainer) -> None:
    old = _register(trainer, "model", save="old")
    new = _register(trainer, "optimizer", save="new")
    assert new.superseded == (old.checkpoint.id,)
    assert new.checkpoint.lifecycle == Lifecycle.ANNOUNCED
    with pytest.raises(ConflictError, match="the parts before it are superseded"):
        _register(trainer, "optimizer", save="old")
    assert _register(trainer, "model", save="new").checkpoint.lifecycle == Lifecycle.REGISTERED


def test_a_save_whose_parts_stop_coming_is_incomplete_and_can_still_be_completed(trainer: Trainer) -> None:
    clock = FakeClock()
    trainer.database.clock = clock
    first = _register(trainer, "model")
    clock.advance(601)
    with trainer.database.write() as tx:
        assert mark_incomplete(tx, limit=10) == 1
    assert trainer.checkpoint(first.checkpoint.id).lifecycle == "incomplete"
    assert _register(trainer, "optimizer").checkpoint.lifecycle == Lifecycle.REGISTERED


def test_an_announcement_becomes_the_save_of_several_parts(trainer: Trainer) -> None:
    announced = trainer.announce(5)
    assert _register(trainer, "model").checkpoint.id == announced.checkpoint.id
    assert _register(trainer, "optimizer").checkpoint.id == announced.checkpoint.id


def test_no_save_has_a_thousand_and_one_parts(trainer: Trainer) -> None:
    names = tuple(f"p{n}" for n in range(1001))
    with pytest.raises(InvalidRequestError, match="at most 1000"):
        trainer.register(5, manifest=saved("r", 5, part="p0", parts=names))

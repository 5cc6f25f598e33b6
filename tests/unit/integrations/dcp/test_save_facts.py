"""What follows from what a user tells of a save."""

import pytest

from ckptguard.errors import ConfigError
from ckptguard.integrations.dcp.save_facts import Place, SaveFacts, facts_for, place_of
from ckptguard.integrations.dcp.save_ids import SaveIds

pytestmark = [pytest.mark.torch]


def _place(folder: str = "/c/run-7/step-1", **facts: object) -> Place:
    return place_of(SaveFacts(**facts), folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("folder", "step"),
    [("/c/step-12", 12), ("s3://b/run/checkpoint-800", 800), ("/c/latest", None), ("/c/step-12.tmp", None)],
)
def test_the_step_is_what_the_folder_tells(folder: str, step: int | None) -> None:
    assert _place(folder).step == step


def test_what_the_user_says_wins_over_the_name() -> None:
    assert _place("/c/step-12", step=13).step == 13


def test_the_final_name_tells_the_step_of_a_draft() -> None:
    place = _place("/c/tmp-checkpoint-5", final_path="/c/checkpoint-5")
    assert (place.step, place.final_root) == (5, "/c/checkpoint-5")


def test_a_run_without_a_name_is_called_after_the_folder_above() -> None:
    assert _place("/c/run-7/step-1").run == "run-7"
    assert _place("/step-1").run == "unnamed"


@pytest.mark.parametrize(
    "facts",
    [{"part": "model"}, {"parts": ("model", "optim")}, {"root": "/c/step-1"}, {"root": "/c/step-1/"}],
)
def test_root_and_part_tell_each_other(facts: dict[str, object]) -> None:
    place = _place("/c/step-1/model", **facts)
    assert (place.root, place.part, place.step) == ("/c/step-1", "model", 1)


@pytest.mark.parametrize("facts", [{"part": "optim"}, {"root": "/elsewhere"}])
def test_a_part_that_is_not_where_the_writer_writes_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="is not part"):
        _place("/c/step-1/model", **facts)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        SaveFacts(run="", step=-1, part="../up", parts=("a", "a"))
    assert all(name in str(told.value) for name in ("run", "step", "part", "parts"))


def test_facts_of_one_folder_do_not_follow_a_writer_to_another() -> None:
    facts = SaveFacts(run="r", step=5, final_path="/c/step-5", save_id="s")
    assert facts_for(facts, described="/c/draft", folder="/c/draft") == facts
    moved = facts_for(facts, described="/c/draft", folder="/c/step-6")
    assert (moved.run, moved.step, moved.final_path) == ("r", None, None)
    assert place_of(moved, "/c/step-6").step == 6


def test_parts_of_a_checkpoint_share_an_id_until_one_comes_again() -> None:
    ids = SaveIds()
    facts = SaveFacts(parts=("model", "optim"))
    model, optim = (place_of(facts, f"/c/step-1/{part}") for part in facts.parts)
    first, is_first = ids.begin(facts, model)
    ids.finish(model, first)
    assert (ids.begin(facts, optim), is_first) == ((first, False), True)
    ids.finish(optim, first)
    second, is_first = ids.begin(facts, model)
    assert is_first
    assert second != first


def test_a_part_that_failed_is_tried_again_under_the_same_id() -> None:
    ids = SaveIds()
    facts = SaveFacts(parts=("model", "optim"))
    model, optim = (place_of(facts, f"/c/step-1/{part}") for part in facts.parts)
    first, _ = ids.begin(facts, model)
    ids.finish(model, first)
    ids.begin(facts, optim)
    assert ids.begin(facts, optim) == (first, False)


def test_a_checkpoint_without_parts_has_a_new_id_each_time() -> None:
    ids, facts = SaveIds(), SaveFacts()
    place = place_of(facts, "/c/step-1")
    assert ids.begin(facts, place)[0] != ids.begin(facts, place)[0]


def test_checkpoints_that_are_never_finished_are_forgotten() -> None:
    ids = SaveIds()
    facts = SaveFacts(parts=("model", "optim"))
    for step in range(200):
        ids.begin(facts, place_of(facts, f"/c/step-{step}/model"))
    assert len(ids._open) == 64

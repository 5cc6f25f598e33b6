"""Hugging Face Trainer over Accelerate's FSDP, sharded: two DCP parts and the files beside them."""

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.integrations.dcp import uninstall
from ckptguard.integrations.registration.spool import Spool
from tests.fresh_spool import spooled
from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("accelerate")
pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    with served_story("huggingface", tmp_path, assurance="loaded") as story:
        losses = story.train("--steps", STEPS)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "checkpoint-6"
        seen = story.shown(6)
        assert {part["name"] for part in seen["parts"]} == {"pytorch_model_fsdp_0", "optimizer_0"}
        assert all(part["is_from_writer"] for part in seen["parts"])

        story.rot(6, largest(story.folder / "checkpoint-6" / "optimizer_0", "*.distcp"))
        good = story.resume()
        assert good == story.folder / "checkpoint-4"
        assert story.train("--steps", STEPS, "--resume", good) == {step: losses[step] for step in (5, 6)}


def test_nothing_is_registered_before_the_trainer_has_saved(tmp_path: Path, own_spool: Spool) -> None:
    from transformers import TrainerControl, TrainerState, TrainingArguments  # noqa: PLC0415 - only where it is

    from ckptguard.integrations.huggingface import guarded_saves  # noqa: PLC0415 - only where transformers is

    saves = guarded_saves(run="r")
    try:
        for part in ("pytorch_model_fsdp_0", "optimizer_0"):
            save({"w": torch.zeros(4)}, checkpoint_id=tmp_path / "checkpoint-7" / part)
        assert own_spool.names() == []
        arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
        saves.on_save(arguments, TrainerState(), TrainerControl())
    finally:
        uninstall()
    assert [(each.run, each.step) for each in spooled(own_spool)] == [("r", 7), ("r", 7)]

"""Accelerate's own `save_state`: two DCP parts, registered when every rank has written everything."""

from pathlib import Path

import pytest

from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("accelerate")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    with served_story("accelerate", tmp_path, assurance="loaded") as story:
        losses = story.train("--steps", STEPS)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "checkpoint-6"
        seen = story.shown(6)
        assert {part["name"] for part in seen["parts"]} == {"pytorch_model_fsdp_0", "optimizer_0"}
        assert all(part["is_from_writer"] for part in seen["parts"])

        story.rot(6, largest(story.folder / "checkpoint-6" / "pytorch_model_fsdp_0", "*.distcp"))
        good = story.resume()
        assert good == story.folder / "checkpoint-4"
        assert story.train("--steps", STEPS, "--resume", good) == {step: losses[step] for step in (5, 6)}

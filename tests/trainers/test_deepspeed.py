"""DeepSpeed ZeRO: one `torch.save` file for each rank, read back after the save; never `proven`."""

from pathlib import Path

import pytest

from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("deepspeed")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("stage", [1, 3])
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(stage: int, tmp_path: Path) -> None:
    with served_story("deepspeed", tmp_path, assurance="content") as story:
        losses = story.train("--steps", STEPS, "--stage", stage)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "global_step6"
        assert story.shown(6)["provenance"] == "unchanged"

        story.rot(6, largest(story.folder / "global_step6", "*_optim_states.pt"))
        good = story.resume()
        assert good == story.folder / "global_step4"
        resumed = story.train("--steps", STEPS, "--stage", stage, "--resume", good)
        assert resumed == {step: losses[step] for step in (5, 6)}

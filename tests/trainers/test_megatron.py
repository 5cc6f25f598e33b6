"""Megatron-core's `torch_dist`: read back after the save, synchronous or not; never `proven`."""

from pathlib import Path

import pytest

from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("megatron.core")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("options", [(), ("--async-save",)], ids=["sync", "async"])
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with served_story("megatron", tmp_path) as story:
        losses = story.train("--steps", STEPS, *options)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "iter_0000006"
        assert story.shown(6)["provenance"] == "unchanged"

        story.rot(6, largest(story.folder / "iter_0000006", "*.distcp"))
        good = story.resume()
        assert good == story.folder / "iter_0000004"
        assert story.train("--steps", STEPS, "--resume", good) == {step: losses[step] for step in (5, 6)}

"""Lightning's ModelParallelStrategy: one DCP folder, and `meta.pt` written after it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.integrations.registration.spool import Spool
from tests.fresh_spool import spooled
from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("lightning")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    with served_story("lightning", tmp_path) as story:
        losses = story.train("--steps", STEPS)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "step=6.ckpt"
        assert story.shown(6)["provenance"] == "proven"

        story.rot(6, largest(story.folder / "step=6.ckpt", "*.distcp"))
        good = story.resume()
        assert good == story.folder / "step=4.ckpt"
        assert story.train("--steps", STEPS, "--resume", good) == {step: losses[step] for step in (5, 6)}


class Strategy:
    """Saves as Lightning's do: shards, and then `meta.pt`."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Path, storage_options: object) -> None:
        """Save."""
        assert storage_options is None
        save({"state_dict": checkpoint.pop("state_dict")}, checkpoint_id=filepath)
        assert self.spool.names() == []
        torch.save(checkpoint, filepath / "meta.pt")


def test_a_save_is_registered_when_meta_pt_is_written(tmp_path: Path, own_spool: Spool) -> None:
    from ckptguard.integrations.lightning import _Guarded  # noqa: PLC0415 - only where Lightning is

    kind = type("Guarded", (_Guarded, Strategy), {})
    checkpoint = {"state_dict": {"w": torch.zeros(4)}, "global_step": 7}
    kind(own_spool, run="r").save_checkpoint(checkpoint, tmp_path / "last.ckpt")
    [entry] = spooled(own_spool)
    assert (entry.run, entry.step) == ("r", 7)
    assert (tmp_path / "last.ckpt" / "meta.pt").exists()

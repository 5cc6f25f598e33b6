"""torchtitan's checkpoint manager, in each of its modes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME
from tests.fresh_spool import spooled
from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("torchtitan")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("mode", ["disabled", "async"])
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(mode: str, tmp_path: Path) -> None:
    with served_story("torchtitan", tmp_path) as story:
        saves = story.folder / "checkpoint"
        losses = story.train("--steps", STEPS, "--async-mode", mode)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == saves / "step-6"
        assert story.shown(6)["provenance"] == "proven"

        story.rot(6, largest(saves / "step-6", "*.distcp"))
        good = story.resume()
        assert good == saves / "step-4"
        assert story.train("--steps", STEPS, "--resume", good) == {step: losses[step] for step in (5, 6)}


def _manager(folder: Path) -> Any:  # noqa: ANN401 - torchtitan has no types
    from ckptguard.integrations.torchtitan import GuardedCheckpointManager  # noqa: PLC0415 - only where torchtitan is

    manager = GuardedCheckpointManager.__new__(GuardedCheckpointManager)  # stock's constructor wants a job
    manager.folder, manager._run, manager._facts = str(folder), "r", {}
    return manager


@pytest.mark.parametrize(("other", "expected"), [({"optimizer": torch.ones(2)}, [2]), ({}, [])])
def test_only_what_training_can_resume_from_is_registered(
    other: dict[str, Any], expected: list[int], tmp_path: Path, own_spool: Spool
) -> None:
    folder = tmp_path / "r"
    _manager(folder).dcp_save({"w": torch.zeros(4), **other}, str(folder / "step-2"), "disabled")
    assert (folder / "step-2" / MANIFEST_NAME).exists()
    assert [each.step for each in spooled(own_spool)] == expected


def test_the_data_loader_of_one_replica_is_no_checkpoint_of_the_run(tmp_path: Path, own_spool: Spool) -> None:
    folder = tmp_path / "r"
    state = {"optimizer": torch.zeros(4)}
    _manager(folder).dcp_save(state, str(folder / "ft-replicat-0" / "step-2"), "disabled")
    assert not (folder / "ft-replicat-0" / "step-2" / MANIFEST_NAME).exists()
    assert own_spool.names() == []

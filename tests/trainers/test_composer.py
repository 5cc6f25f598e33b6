"""Composer's trainer with FSDP2, sharded: one DCP folder that holds all of its state."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.integrations.incidents import counters
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME
from tests.fresh_spool import spooled
from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("composer")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    with served_story("composer", tmp_path) as story:
        losses = story.train("--steps", STEPS)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "ep0-ba6"
        assert story.shown(6)["provenance"] == "proven"

        story.rot(6, largest(story.folder / "ep0-ba6", "*.distcp"))
        good = story.resume()
        assert good == story.folder / "ep0-ba4"
        assert story.train("--steps", STEPS, "--resume", good) == {step: losses[step] for step in (5, 6)}


class State:
    """What a saver asks of Composer's, two batches into the training."""

    class timestamp:  # noqa: N801 - of Composer
        """When."""

        batch = 2


Saver = Callable[..., Any]


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[Saver]:
    """Return what builds a guarded saver that saves as Composer's, without a trainer."""
    from composer.callbacks import CheckpointSaver  # noqa: PLC0415 - only where Composer is

    from ckptguard.integrations.composer import GuardedCheckpointSaver  # noqa: PLC0415 - only where Composer is

    built: list[Any] = []

    class Saves(CheckpointSaver):  # type: ignore[misc] # Composer's are skipped
        def _save_checkpoint(self, *_given: object) -> None:
            save(
                {"w": torch.zeros(4)},
                storage_writer=vars(dcp)["FileSystemWriter"](tmp_path / "r" / "ep0-ba2"),
            )

    def build(**options: Any) -> Any:  # noqa: ANN401 - as above
        kind = type("Guarded", (GuardedCheckpointSaver, Saves), {})
        built.append(kind(str(tmp_path / "r"), run="r", **options))
        return built[-1]

    yield build
    for one in built:
        one.tmp_dir_for_symlink.cleanup()


@pytest.mark.parametrize(("options", "expected"), [({}, [2]), ({"weights_only": True}, [])])
def test_only_what_training_can_resume_from_is_registered(
    options: dict[str, Any], expected: list[int], saver: Saver, tmp_path: Path, own_spool: Spool
) -> None:
    saver(**options)._save_checkpoint(State, None)
    assert (tmp_path / "r" / "ep0-ba2" / MANIFEST_NAME).exists()
    assert [each.step for each in spooled(own_spool)] == expected


def test_what_composer_uploads_is_not_guarded_and_that_is_told(
    saver: Saver, tmp_path: Path, own_spool: Spool
) -> None:
    uploading = saver()
    uploading.remote_uploader = object()
    uploading._save_checkpoint(State, None)
    assert (tmp_path / "r" / "ep0-ba2" / ".metadata").exists()
    assert not (tmp_path / "r" / "ep0-ba2" / MANIFEST_NAME).exists()
    assert own_spool.names() == []
    assert counters()["not_guarded"] == 1


def test_a_checkpoint_is_loaded_with_and_without_ckptguard() -> None:
    from composer.callbacks import CheckpointSaver  # noqa: PLC0415 - only where Composer is

    from ckptguard.integrations.composer import GuardedCheckpointSaver  # noqa: PLC0415 - only where Composer is

    # Composer names the states of callbacks by this, and demands each of them of a sharded checkpoint.
    assert GuardedCheckpointSaver.__qualname__ == CheckpointSaver.__qualname__

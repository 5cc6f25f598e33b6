"""`save_state` around Accelerate's, with an accelerator that saves two parts as Accelerate does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.integrations.accelerate import parts_of, save_state
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME
from tests.fresh_spool import spooled

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]


class Accelerator:
    """Saves a model and an optimizer, then a sidecar; sees what was registered by then.

    Args:
        registered: Names what was.
        fails_after: Part after which it fails.
    """

    def __init__(self, registered: Callable[[], list[str]], *, fails_after: str | None = None) -> None:
        self._registered, self._fails_after = registered, fails_after
        self.seen: list[str] = []
        self.is_waited_for = False

    def save_state(self, output_dir: str, **_options: Any) -> str:  # noqa: ANN401 - of Accelerate
        """Save."""
        for part in parts_of():
            writer = vars(dcp)["FileSystemWriter"](f"{output_dir}/{part}")
            save({"w": torch.zeros(8)}, storage_writer=writer)
            if part == self._fails_after:
                raise OSError
        (Path(output_dir) / "scheduler.bin").write_bytes(b"x")
        self.seen = self._registered()
        return output_dir

    def wait_for_everyone(self) -> None:
        """Wait."""
        assert self._registered() == []
        self.is_waited_for = True


def test_both_parts_are_registered_once_everything_is_written(tmp_path: Path, own_spool: Spool) -> None:
    accelerator = Accelerator(own_spool.names)
    folder = tmp_path / "r" / "checkpoint_3"
    assert save_state(accelerator, str(folder), run="r", step=1200) == str(folder)
    assert accelerator.is_waited_for
    assert accelerator.seen == []
    assert {(each.run, each.step, each.manifest["part"]) for each in spooled(own_spool)} == {
        ("r", 1200, "pytorch_model_fsdp_0"),
        ("r", 1200, "optimizer_0"),
    }


def test_stock_writers_are_stock_again_afterwards(tmp_path: Path, own_spool: Spool) -> None:
    before = vars(dcp)["FileSystemWriter"]
    save_state(Accelerator(own_spool.names), str(tmp_path / "checkpoint_3"), run="r", step=3)
    assert vars(dcp)["FileSystemWriter"] is before


def test_half_a_save_is_never_registered(tmp_path: Path, own_spool: Spool) -> None:
    failing = Accelerator(own_spool.names, fails_after="pytorch_model_fsdp_0")
    with pytest.raises(OSError):  # noqa: PT011 - the accelerator's own
        save_state(failing, str(tmp_path / "checkpoint_3"), run="r", step=3)
    save_state(Accelerator(own_spool.names), str(tmp_path / "checkpoint_4"), run="r", step=4)
    assert [each.step for each in spooled(own_spool)] == [4, 4]


def test_the_step_is_the_optimizers_not_the_number_of_the_save(tmp_path: Path, own_spool: Spool) -> None:
    save_state(Accelerator(own_spool.names), str(tmp_path / "checkpoint_3"), run="r", step=1200)
    manifest = json.loads((tmp_path / "checkpoint_3" / "optimizer_0" / MANIFEST_NAME).read_text())
    assert manifest["step"] == 1200

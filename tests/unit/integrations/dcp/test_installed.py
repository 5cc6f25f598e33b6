"""Facts that hold for the writers of one block, and no longer."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.errors import ConfigError
from ckptguard.integrations.dcp import install, installed, release, uninstall
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]


def _told(folder: Path) -> tuple[str, int]:
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    return manifest["run"], manifest["step"]


def _save(folder: Path) -> Path:
    save({"w": torch.zeros(4)}, checkpoint_id=folder)
    return folder


@pytest.mark.usefixtures("own_spool")
def test_facts_hold_inside_the_block_and_stock_is_back_after_it(tmp_path: Path) -> None:
    with installed(run="r", step=7):
        assert _told(_save(tmp_path / "last")) == ("r", 7)
    assert vars(dcp)["FileSystemWriter"] is FileSystemWriter
    assert not (_save(tmp_path / "later") / MANIFEST_NAME).exists()


@pytest.mark.usefixtures("own_spool")
def test_what_was_installed_before_the_block_holds_again_after_it(tmp_path: Path) -> None:
    install(run="outer")
    try:
        with suppress(ZeroDivisionError), installed(run="inner", step=7):
            assert _told(_save(tmp_path / "step-7")) == ("inner", 7)
            raise ZeroDivisionError
        assert _told(_save(tmp_path / "step-8")) == ("outer", 8)
    finally:
        uninstall()


def test_what_is_no_fact_of_a_save_is_refused_and_nothing_changes() -> None:
    with pytest.raises(ConfigError, match="thread_count"), installed(run="r", thread_count=2):
        pass
    assert vars(dcp)["FileSystemWriter"] is FileSystemWriter


def test_a_held_save_is_registered_at_release(tmp_path: Path, own_spool: Spool) -> None:
    with installed(run="r", hold=True):
        _save(tmp_path / "step-1")
    assert own_spool.names() == []
    assert release() == 1
    assert len(own_spool.names()) == 1

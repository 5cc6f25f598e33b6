"""What is done around `engine.save_checkpoint`, with an engine that only notes what it is asked."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckptguard.integrations.deepspeed import save_checkpoint
from ckptguard.integrations.read_back import READ_BACKS
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME

pytestmark = [pytest.mark.torch]
_WITHIN_S = 60.0


class Engine:
    """An engine whose save writes one file for its rank.

    Args:
        rank: Of all.
        is_local: Each node keeps its own files.
        is_decoupled: It writes on when `save_checkpoint` has returned.
    """

    def __init__(self, *, rank: int = 0, is_local: bool = False, is_decoupled: bool = False) -> None:
        self.global_steps = 4
        self.global_rank = rank
        self.checkpoint_engine = SimpleNamespace(is_decoupled=lambda: is_decoupled)
        self.use_node_local_storage = lambda: is_local
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.had_manifest = False

    def save_checkpoint(self, save_dir: str, *, tag: str, **options: object) -> bool:
        """Save."""
        folder = Path(save_dir) / tag
        self.had_manifest = (folder / MANIFEST_NAME).exists()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"zero_pp_rank_{self.global_rank}_mp_rank_00_optim_states.pt").write_bytes(b"state")
        self.asked.append((save_dir, tag, options))
        return True


@pytest.fixture(autouse=True)
def _read_to_the_end(own_spool: Spool) -> Iterator[None]:
    assert own_spool.names() == []
    yield
    assert READ_BACKS.settle(_WITHIN_S)


def test_the_engine_is_asked_as_before(tmp_path: Path) -> None:
    engine = Engine()
    options: dict[str, Any] = {"client_state": {"a": 1}, "save_latest": False}
    assert save_checkpoint(engine, str(tmp_path / "r"), run="r", **options) is True
    assert engine.asked == [(str(tmp_path / "r"), "global_step4", options)]


def test_an_old_manifest_is_gone_when_the_engine_writes(tmp_path: Path) -> None:
    (tmp_path / "r" / "best").mkdir(parents=True)
    (tmp_path / "r" / "best" / MANIFEST_NAME).write_text("old")
    engine = Engine()
    save_checkpoint(engine, str(tmp_path / "r"), "best", run="r")
    assert not engine.had_manifest
    assert READ_BACKS.settle(_WITHIN_S)
    assert '"step":4' in (tmp_path / "r" / "best" / MANIFEST_NAME).read_text().replace(" ", "")


@pytest.mark.parametrize(
    "engine",
    [Engine(rank=1), Engine(is_local=True), Engine(is_decoupled=True)],
    ids=["another rank", "files on each node", "still writing"],
)
def test_no_manifest_where_this_process_may_not_see_all_of_a_save(engine: Engine, tmp_path: Path) -> None:
    assert save_checkpoint(engine, str(tmp_path / "r"), run="r") is True
    assert READ_BACKS.settle(_WITHIN_S)
    assert not (tmp_path / "r" / "global_step4" / MANIFEST_NAME).exists()

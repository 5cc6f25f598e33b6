"""OLMo-core's trainer: one DCP part in a folder that is renamed, and the files that it writes around it."""

from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from ckptguard.integrations.incidents import counters
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME
from tests.fresh_spool import spooled
from tests.trainers.story import STEPS, largest, served_story

pytest.importorskip("olmo_core.train")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
_WITHIN_S = 60.0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("options", [(), ("--save-async",)], ids=["sync", "async"])
def test_training_goes_on_from_the_last_good_checkpoint_bit_for_bit(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with served_story("olmo_core", tmp_path) as story:
        losses = story.train("--steps", STEPS, *options)
        assert sorted(losses) == list(range(1, STEPS + 1))
        assert story.resume() == story.folder / "step6"
        seen = story.shown(6)
        assert {part["name"] for part in seen["parts"]} == {"model_and_optim"}
        assert all(part["is_from_writer"] for part in seen["parts"])
        assert seen["provenance"] == "proven"

        story.rot(6, largest(story.folder / "step6" / "model_and_optim", "*.distcp"))
        good = story.resume()
        assert good == story.folder / "step4"
        resumed = story.train("--steps", STEPS, *options, "--resume", good)
        assert resumed == {step: losses[step] for step in (5, 6)}


class Module:
    """A train module of one weight.

    Args:
        spool: Of registrations.
    """

    def __init__(self, spool: Spool) -> None:
        self.spool, self.weights = spool, torch.arange(1000.0)

    def state_dict_to_save(self) -> dict[str, Any]:
        """Return the weight; nothing may be registered before it is saved."""
        assert self.spool.names() == []
        return {"model": {"w": self.weights}}

    def state_dict_to_load(self, _metadata: object, *, optim: bool | None = None) -> dict[str, Any]:
        """Return where it is loaded to."""
        del optim
        return {"model": {"w": torch.zeros(1000)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it."""
        self.weights = state["model"]["w"]


def _checkpointer(tmp_path: Path, **options: Any) -> Any:  # noqa: ANN401 - OLMo-core's types are skipped
    from ckptguard.integrations.olmo_core import (  # noqa: PLC0415 - only where OLMo-core is
        GuardedCheckpointerConfig,
    )

    return GuardedCheckpointerConfig(work_dir=str(tmp_path), run="r", **options).build()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_save_is_registered_once_olmo_core_itself_would_take_it(
    *, is_async: bool, tmp_path: Path, own_spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer, folder = _checkpointer(tmp_path), tmp_path / "r" / "step7"
    stock = type(checkpointer)._save_metadata

    def saved_metadata(self: Any, *given: Any) -> None:  # noqa: ANN401 - of OLMo-core
        assert (folder / "model_and_optim" / MANIFEST_NAME).exists()
        assert own_spool.names() == []
        stock(self, *given)

    monkeypatch.setattr(type(checkpointer), "_save_metadata", saved_metadata)
    _save(checkpointer, folder, Module(own_spool), is_async=is_async)
    assert checkpointer.dir_is_checkpoint(folder)
    [entry] = spooled(own_spool)
    assert (entry.run, entry.step, entry.manifest["part"]) == ("r", 7, "model_and_optim")
    assert entry.manifest_at == str(folder / "model_and_optim" / MANIFEST_NAME)


def test_olmo_core_reads_a_guarded_save_as_its_own(tmp_path: Path, own_spool: Spool) -> None:
    checkpointer, folder = _checkpointer(tmp_path), tmp_path / "r" / "step7"
    _save(checkpointer, folder, Module(own_spool))
    other = Module(own_spool)
    other.weights = torch.zeros(1)
    assert checkpointer.load(folder, other, load_trainer_state=True) == {"global_step": 7}
    assert torch.equal(other.weights, torch.arange(1000.0))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_save_that_olmo_core_did_not_finish_is_never_registered(
    *, is_async: bool, tmp_path: Path, own_spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = _checkpointer(tmp_path)
    with monkeypatch.context() as broken, suppress(OSError):  # an asynchronous save says nothing
        broken.setattr(type(checkpointer), "_save_metadata", _fail)
        _save(checkpointer, tmp_path / "r" / "step7", Module(own_spool), is_async=is_async)
    assert (tmp_path / "r" / "step7" / "model_and_optim" / MANIFEST_NAME).exists()
    _save(checkpointer, tmp_path / "r" / "step8", Module(own_spool))
    assert [each.step for each in spooled(own_spool)] == [8]


def test_a_background_save_that_fails_is_never_registered(tmp_path: Path, own_spool: Spool) -> None:
    checkpointer, failing = _checkpointer(tmp_path, save_thread_count=1), Module(own_spool)
    failing.weights = lambda: None  # type: ignore[assignment] # cannot be pickled
    with pytest.raises(CheckpointException):
        _save(checkpointer, tmp_path / "r" / "step7", failing, is_async=True)
    assert own_spool.names() == []


def test_a_train_module_that_saves_itself_is_not_guarded_and_that_is_told(
    tmp_path: Path, own_spool: Spool
) -> None:
    module = Module(own_spool)
    saved: list[str] = []
    module.save_state_dict_direct = lambda folder, **_: saved.append(str(folder))  # type: ignore[attr-defined]
    _save(_checkpointer(tmp_path), tmp_path / "r" / "step7", module)
    assert len(saved) == 1
    assert own_spool.names() == []
    assert counters()["not_guarded"] == 1


def _fail(*_given: object) -> None:
    raise OSError


def _save(checkpointer: Any, folder: Path, module: Module, *, is_async: bool = False) -> None:  # noqa: ANN401 - OLMo-core's types are skipped
    if not is_async:
        checkpointer.save(folder, module, {"global_step": int(folder.name.removeprefix("step"))})
        return
    settled: Future[None] = Future()
    saving = checkpointer.save_async(folder, module, {"global_step": int(folder.name.removeprefix("step"))})
    saving.add_done_callback(lambda _: settled.set_result(None))  # after all others
    settled.result(timeout=_WITHIN_S)
    saving.result()

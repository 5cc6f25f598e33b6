"""OLMo-core: its trainer's checkpointer, with guarded saves.

    TrainerConfig(checkpointer=GuardedCheckpointerConfig(run="run-7"), …)

OLMo-core has a DCP writer of its own, which puts temporary files past DCP's file system, and describes them
by a class that stock `dcp.load` does not know. A guarded save goes through torch's writer instead: the same
names and items, which OLMo-core's own reader reads as its own. It then writes `.metadata.json`, without which
it takes no folder for a checkpoint: so a save is registered after that.
Source: ai2-olmo-core 3.0.0, train/checkpoint.py and distributed/checkpoint/__init__.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from olmo_core.distributed import checkpoint as writers
from olmo_core.io import is_url, normalize_path
from olmo_core.train import Checkpointer, CheckpointerConfig
from olmo_core.utils import get_default_thread_count

from ckptguard.integrations import incidents
from ckptguard.integrations.dcp import GuardedWriter, discard, release

if TYPE_CHECKING:
    from concurrent.futures import Future

_PART: Final = "model_and_optim"
_MEANINGLESS: Final = frozenset({"process_group", "process_count", "throttle_uploads"})


@dataclass
class GuardedCheckpointer(Checkpointer):
    """`Checkpointer` whose saves leave a manifest and are registered.

    As stock, and told once: saves to a URL, and of train modules that save themselves (`OLMoDDPTrainModule`).

    Args:
        run: Training lineage; None: manifests are left, and nothing is registered.
        facts: Others of `SaveFacts` that hold for every save.
    """

    run: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def save(
        self,
        dir: Any,  # noqa: A002 - stock's name
        train_module: Any,
        train_state: dict[str, Any],
        ephemeral: bool = False,
    ) -> None:
        """Save as stock does, through a guarded writer."""
        if not _can_be_guarded(dir, train_module):
            super().save(dir, train_module, train_state, ephemeral)
            return
        try:
            with _guarded(self._writer(dir, train_state)):
                super().save(dir, train_module, train_state, ephemeral)
        except BaseException:
            discard()
            raise
        release()

    def save_async(
        self,
        dir: Any,  # noqa: A002 - stock's name
        train_module: Any,
        train_state: dict[str, Any],
        ephemeral: bool = False,
    ) -> "Future[None]":
        """Save as stock does, through a guarded writer."""
        if not _can_be_guarded(dir, train_module):
            stock: Future[None] = super().save_async(dir, train_module, train_state, ephemeral)
            return stock
        with _guarded(self._writer(dir, train_state)):
            saving: Future[None] = super().save_async(dir, train_module, train_state, ephemeral)
        saving.add_done_callback(
            partial(self._settle, dir)
        )  # after stock's own, which writes `.metadata.json`
        return saving

    def _settle(self, dir: Any, saving: "Future[None]") -> None:  # noqa: A002 - stock's name
        is_complete = saving.exception() is None and self.dir_is_checkpoint(dir)
        (release if is_complete else discard)()

    def _writer(self, dir: Any, train_state: dict[str, Any]) -> Any:  # noqa: A002 - stock's name
        told = {"run": self.run, "step": int(train_state["global_step"]), **self.facts}
        return partial(_writer, final_path=normalize_path(dir), **told)


@dataclass
class GuardedCheckpointerConfig(CheckpointerConfig):
    """`CheckpointerConfig` that builds a `GuardedCheckpointer`, with what it takes."""

    run: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def build(self, process_group: Any = None, **kwargs: Any) -> GuardedCheckpointer:
        """Build as stock does."""
        given = {each.name: getattr(self, each.name) for each in fields(CheckpointerConfig)}
        built = CheckpointerConfig(**given).build(process_group, **kwargs)
        return GuardedCheckpointer(**vars(built), run=self.run, facts=self.facts)


def _can_be_guarded(folder: Any, train_module: Any) -> bool:
    if is_url(folder):
        incidents.tell("not_guarded", "OLMo-core saves to a URL past DCP: use ckptguard adopt")
        return False
    if hasattr(train_module, "save_state_dict_direct"):
        incidents.tell("not_guarded", f"{type(train_module).__name__} saves itself: use ckptguard adopt")
        return False
    return True


@contextmanager
def _guarded(writer: Any) -> Iterator[None]:
    """Have OLMo-core build this writer inside the block, where it would build its own."""
    own = writers.RemoteFileSystemWriter
    writers.RemoteFileSystemWriter = writer
    try:
        yield
    finally:
        writers.RemoteFileSystemWriter = own


def _writer(path: Any, *, thread_count: int | None, **others: Any) -> Any:
    """Return a guarded writer where OLMo-core asks for its own.

    Args:
        path: Of the part; its folder may be one that is renamed at the end.
        thread_count: As stock takes it; also so many files for each rank.
        **others: Facts of the save, and what only OLMo-core's own writer has a use for.
    """
    return GuardedWriter(
        path,
        part=_PART,
        parts=(_PART,),
        root=Path(path).parent,
        hold=True,
        thread_count=thread_count or get_default_thread_count(),
        **{name: told for name, told in others.items() if name not in _MEANINGLESS},
    )

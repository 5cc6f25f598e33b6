"""Make stock DCP writers guarded in this process, for trainers that build the writer themselves.

Accelerate and the trainers above it call `dist_cp.FileSystemWriter(folder)` with no way in. `install`
puts guarded classes where `torch.distributed.checkpoint` keeps the stock ones. Only a writer of exactly
these classes is guarded: one of a subclass that somebody derives meanwhile behaves as stock.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _fsspec_filesystem, _storage_utils, filesystem

from ckptguard.errors import ConfigError
from ckptguard.integrations.dcp.guard import part_options
from ckptguard.integrations.dcp.save_facts import SaveFacts
from ckptguard.integrations.dcp.writers import GuardedFileSystemWriter, GuardedFsspecWriter

if TYPE_CHECKING:
    from ckptguard.integrations.dcp.guard import Guard as Base
else:
    Base = object

_lock = threading.Lock()
_given: dict[str, Any] = {}


class _Installed(Base):
    """Gives what `install` was told to every writer that is built without it."""

    def __init__(self, path: Any, *args: Any, **options: Any) -> None:
        super().__init__(path, *args, **{**_given, **options})

    @property
    def is_guarding(self) -> bool:
        """Say yes for exactly the installed classes."""
        return type(self) in _CLASSES


class InstalledFileSystemWriter(_Installed, GuardedFileSystemWriter):
    """What `FileSystemWriter` means while installed."""


class InstalledFsspecWriter(_Installed, GuardedFsspecWriter):
    """What `FsspecWriter` means while installed."""


_CLASSES: Final = (InstalledFileSystemWriter, InstalledFsspecWriter)
_STOCK_LOCAL: Final = filesystem.FileSystemWriter
_STOCK_FSSPEC: Final = _fsspec_filesystem.FsspecWriter
_PLACES: Final = (
    (dcp, "FileSystemWriter", _STOCK_LOCAL, InstalledFileSystemWriter),
    (filesystem, "FileSystemWriter", _STOCK_LOCAL, InstalledFileSystemWriter),
    (_storage_utils, "FileSystemWriter", _STOCK_LOCAL, InstalledFileSystemWriter),
    (_fsspec_filesystem, "FsspecWriter", _STOCK_FSSPEC, InstalledFsspecWriter),
)


def install(*, run: str | None = None, parts: Sequence[str] = (), **facts: Any) -> None:
    """Guard every stock writer that this process builds from now on; again: with these facts.

    Call it before the trainer is imported: a name that a module took from torch earlier stays stock.
    The step is what the name of the checkpoint's folder tells (`checkpoint-500`).

    Args:
        run: Training lineage; None: manifests are left, and nothing is registered.
        parts: Folders that every checkpoint consists of, e.g. `("pytorch_model_fsdp_0", "optimizer_0")`.
        **facts: Others of `SaveFacts`.

    Raises:
        ConfigError: They make no sense, or hold for one save only (`step`, `save_id`, `part`, …).
    """
    for_one = sorted({"step", "save_id", "root", "final_path", "part"} & facts.keys())
    if for_one:
        msg = f"every save has its own: {', '.join(for_one)}"
        raise ConfigError(msg)
    _put({"run": run, "parts": tuple(parts), **facts})


@contextmanager
def installed(**facts: Any) -> Iterator[None]:
    """Guard the stock writers that are built inside the block; what held before holds again after it.

    For trainers whose save is one synchronous call. Blocks of several threads at once disturb each other.

    Args:
        **facts: Of `SaveFacts`, also of one save (`step=…`).

    Raises:
        ConfigError: They make no sense.
    """
    with _lock:
        facts_before = dict(_given)
        before = [getattr(module, name) for module, name, _, _ in _PLACES]
    _put(facts)
    try:
        yield
    finally:
        with _lock:
            _given.clear()
            _given.update(facts_before)
            for (module, name, _, guarded), was in zip(_PLACES, before, strict=True):
                if getattr(module, name) is guarded:
                    setattr(module, name, was)


def _put(told: Mapping[str, Any]) -> None:
    given, stock_options = part_options(told)
    if stock_options:
        msg = f"no facts of a save: {', '.join(sorted(stock_options))}"
        raise ConfigError(msg)
    SaveFacts(**given)
    with _lock:
        _given.clear()
        _given.update(told)
        for module, name, stock, guarded in _PLACES:
            if getattr(module, name) is stock:
                setattr(module, name, guarded)


def uninstall() -> None:
    """Put the stock classes back; writers that exist stay as they are."""
    with _lock:
        _given.clear()
        for module, name, stock, guarded in _PLACES:
            if getattr(module, name) is guarded:
                setattr(module, name, stock)

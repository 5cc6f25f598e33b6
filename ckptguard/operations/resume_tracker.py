"""Trackers: the files by which trainers that cannot be told a step find the one to load.

A tracker is written only for a checkpoint that was just seen as it was validated. One that stands
there already is never removed: without it these trainers start from random weights, and say so in
one line of their log.
"""

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ckptguard.errors import ConfigError, UnsupportedFormatError
from ckptguard.model.resume import Ending
from ckptguard.operations.resume import Found
from ckptguard.storage.folder_sync import sync_folder
from ckptguard.storage.os_errors import translating_os_errors

_PROVEN_NOW: Final = frozenset({Ending.PROVEN, Ending.BELOW})
"""Endings whose checkpoint was held against its evidence a moment ago; `last_known` is of before."""


class Tracker(StrEnum):
    """Whose tracker."""

    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerFile:
    """What to write, and where.

    Args:
        path: Of the file, beside the checkpoint's folder.
        text: All that it holds.
    """

    path: Path
    text: str


def tracker_of(kind: Tracker, found: Found) -> TrackerFile | None:
    """Return the tracker that leads to a checkpoint; None: this ending proves nothing now.

    Megatron-LM reads an iteration and opens `iter_0001200` (training/checkpointing.py,
    `read_metadata` and `get_checkpoint_name`); DeepSpeed reads a folder's name
    (runtime/engine.py, `load_checkpoint`).

    Raises:
        ConfigError: The checkpoint is in an object store.
        UnsupportedFormatError: The trainer would not find it by its tracker: another name.
    """
    if found.path is None or found.step is None or found.ending not in _PROVEN_NOW:
        return None
    if "://" in found.path:
        msg = f"a tracker is a file beside the checkpoint, and {found.path} is no folder of this machine"
        raise ConfigError(msg)
    folder = Path(found.path)
    if kind is Tracker.DEEPSPEED:
        return TrackerFile(path=folder.with_name("latest"), text=folder.name)
    expected = f"iter_{found.step:07d}"
    if folder.name != expected:
        msg = f"Megatron opens {expected} for iteration {found.step}, and the checkpoint is {folder.name}"
        raise UnsupportedFormatError(msg)
    return TrackerFile(path=folder.with_name("latest_checkpointed_iteration.txt"), text=str(found.step))


def write_tracker(tracker: TrackerFile) -> None:
    """Put a tracker in place in one step: a reader sees the old one or the new one, whole.

    Raises:
        StoreError: It could not be written; the old one is as it was.
    """
    folder = tracker.path.parent
    with translating_os_errors(str(tracker.path)):
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{tracker.path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(tracker.text)
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)  # ranks of another user read it too
                os.fsync(stream.fileno())
            Path(name).replace(tracker.path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
        sync_folder(folder)

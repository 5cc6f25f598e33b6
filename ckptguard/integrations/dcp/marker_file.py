"""The marker of a save that is under way, left and taken away, local or not."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from ckptguard.integrations.dcp.manifest_file import local_folder, remove_file
from ckptguard.integrations.dcp.recording_fs import RecordingFileSystem
from ckptguard.model.saving_marker import is_saving_marker, marker_name

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A save that has marked its folder.

    Args:
        folder: Of the part.
        own: Name of its marker.
        others: Names of those that stood there: of saves that died, or that go on.
    """

    folder: str
    own: str
    others: tuple[str, ...]


def mark_folder(fs: RecordingFileSystem, folder: str, save_id: str) -> Marked:
    """Leave a marker, for as long as the save lasts.

    It is not synced by itself: the folder is, whenever what stood there before is removed.

    Raises:
        OSError, or what the driver raises: There may be none.
    """
    own = marker_name(save_id, secrets.token_hex(_TOKEN_BYTES))
    others = tuple(name for name in _names(fs, folder) if is_saving_marker(name))
    local = local_folder(fs, folder)
    if local is not None:
        (local / own).touch(exist_ok=False)
    else:
        fs.inner.fs.pipe_file(f"{folder}/{own}", b"")
    return Marked(folder=folder, own=own, others=others)


def unmark_folder(fs: RecordingFileSystem, marked: Marked, *, is_proven: bool) -> None:
    """Take the marker away.

    Args:
        fs: Of the writer.
        marked: The save.
        is_proven: Its manifest is there, which tells more than any marker: those that stood there go too.

    Raises:
        OSError, or what the driver raises: Some may still be there.
    """
    for name in (*(marked.others if is_proven else ()), marked.own):
        remove_file(fs, f"{marked.folder}/{name}")


def _names(fs: RecordingFileSystem, folder: str) -> Iterator[str]:
    local = local_folder(fs, folder)
    if local is not None:
        yield from (path.name for path in local.iterdir())
        return
    driver = fs.inner.fs
    driver.invalidate_cache()  # s3fs remembers listings
    if driver.exists(folder):
        yield from (path.rstrip("/").rpartition("/")[2] for path in driver.ls(folder, detail=False))

"""The manifest as the last file of its folder, and its removal before a re-save, local or not."""

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint.filesystem import FileSystem

from ckptguard.formats.manifest_json import to_json
from ckptguard.integrations.dcp.recording_fs import RecordingFileSystem
from ckptguard.model.manifest import MANIFEST_NAME, Manifest
from ckptguard.operations.manifest import write_manifest
from ckptguard.storage.folder_sync import sync_folder

METADATA_NAME: Final = ".metadata"
_LOCAL_PROTOCOLS: Final = frozenset({"file", "local"})


def leave_manifest(fs: RecordingFileSystem, folder: str, manifest: Manifest) -> bytes:
    """Write a manifest beside its shards, whole or not at all; return its bytes.

    It ends with a sync of the folder, so that the names of shards and metadata outlive a power failure too.

    Args:
        fs: Of the writer.
        folder: Of the part.
        manifest: Of the save.

    Raises:
        StoreError, OSError, or what the driver raises: It was not written.
    """
    local = local_folder(fs, folder)
    if local is None:
        data = to_json(manifest)
        fs.inner.fs.pipe_file(f"{folder}/{MANIFEST_NAME}", data)  # one PUT: there is never half of it
        return data
    return write_manifest(local / MANIFEST_NAME, manifest)


def remove_commit(fs: RecordingFileSystem, folder: str, *, is_durable: bool) -> None:
    """Remove what would bless the files of a folder: the manifest, then `.metadata`; none there is fine.

    Raises:
        OSError, or what the driver raises: One of them may still be there.
    """
    is_changed = [remove_file(fs, f"{folder}/{name}") for name in (MANIFEST_NAME, METADATA_NAME)]
    local = local_folder(fs, folder)
    if is_durable and local is not None and any(is_changed):
        sync_folder(local)


def remove_manifest(fs: RecordingFileSystem, folder: str) -> None:
    """Remove the manifest of a folder; none there is fine.

    Raises:
        OSError, or what the driver raises: It may still be there.
    """
    remove_file(fs, f"{folder}/{MANIFEST_NAME}")


def remove_file(fs: RecordingFileSystem, path: str) -> bool:
    """Remove a file, and say whether there was one.

    Raises:
        OSError, or what the driver raises: It may still be there.
    """
    with suppress(FileNotFoundError):
        local = local_folder(fs, path)
        if local is not None:
            local.unlink()
            return True
        driver = fs.inner.fs
        driver.invalidate_cache()  # s3fs remembers listings, so it would not see what another rank wrote
        if driver.exists(path):
            driver.rm_file(path)
            return True
    return False


def local_folder(fs: RecordingFileSystem, folder: str) -> Path | None:
    """Return a folder as a path of this machine; None where it is an object store's."""
    if isinstance(fs.inner, FileSystem):
        return Path(folder)
    driver: Any = fs.inner.fs
    protocols = {driver.protocol} if isinstance(driver.protocol, str) else set(driver.protocol)
    return Path(driver._strip_protocol(folder)) if protocols & _LOCAL_PROTOCOLS else None  # noqa: SLF001 - fsspec's way to say it

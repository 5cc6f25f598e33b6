"""Make a manifest of what is stored, write one, and find those that lie beside the shards."""

import fnmatch
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import xxhash

from ckptguard import __version__
from ckptguard.clock import Clock
from ckptguard.errors import PathEscapeError, StoreUnavailableError
from ckptguard.formats.manifest_json import ManifestLimits, parse_manifest, to_json
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.layout import Layout
from ckptguard.model.manifest import (
    MANIFEST_NAME,
    UNKNOWN_FORMAT,
    ChecksumSource,
    Manifest,
    ManifestFile,
    Origin,
    Role,
    Writer,
    default_save_id,
    identity,
)
from ckptguard.model.policy import MIB
from ckptguard.model.saving_marker import is_left_by_ckptguard
from ckptguard.operations.manifests_beside import ManifestBeside, load_manifest_beside, manifest_folders
from ckptguard.scan.progress import ProgressListener, ProgressMeter
from ckptguard.storage.folder_sync import sync_folder
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.os_errors import translating_os_errors
from ckptguard.storage.protocol import ObjectStat, Store

__all__ = [
    "LEFTOVERS",
    "ManifestBeside",
    "ReadBack",
    "delete_manifest",
    "load_manifest",
    "load_manifest_beside",
    "make_manifest",
    "manifest_folders",
    "write_manifest",
]

LEFTOVERS: Final = ("*.tmp", "*.swp", ".DS_Store", "._*", ".nfs*", "Thumbs.db")
"""Names of files that no save wrote, or that it did not finish: never listed."""
_BATCH_FILES: Final = 4096
_PENDING_SAVE_ID: Final = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """How to read a checkpoint back.

    Args:
        layouts: What its metadata describes, paths relative to the folder; give roles,
            format and save id. None where no adapter recognised it.
        ignored: Name patterns that are not listed; manifests never are.
        jobs: Files read at the same time.
        block_bytes: One read.
        max_files: Files at most.
    """

    layouts: Sequence[Layout] = ()
    ignored: Sequence[str] = LEFTOVERS
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    block_bytes: int = 8 * MIB
    max_files: int = 1_000_000


def make_manifest(
    store: Store,
    prefix: str,
    *,
    run: str,
    step: int,
    clock: Clock,
    progress: ProgressListener | None = None,
    how: ReadBack | None = None,
) -> Manifest:
    """Read every file of a folder and list it, with its checksum as storage gives it now.

    Such a manifest (`origin: read_back`) proves that the files are unchanged since, and
    no more: whether they come from one save, and arrived whole, it cannot know.

    Args:
        store: Where the folder lies.
        prefix: Folder in the store.
        run: Lineage to write down.
        step: Step to write down.
        clock: Gives `created_at`, the moment before the first byte is read.
        progress: Told of bytes and files, from the reading threads, one call at a time.
        how: Roles and limits.

    Raises:
        StoreError: A file was not read to its end, or changed meanwhile; or a link leads
            out of the store (`PathEscapeError`).
        ManifestFormatError: No files, or names that no manifest may list.
        LimitExceededError: More than `how.max_files`.
    """
    how = how or ReadBack()
    created_at = clock.now()
    listing = list_folder(store, prefix, max_files=how.max_files)
    if listing.escapes:
        msg = "leads out of the store, or is no regular file"
        raise PathEscapeError(msg, key=listing.in_store(listing.escapes[0]))
    manifest = Manifest(
        run=run,
        step=step,
        save_id=_PENDING_SAVE_ID,
        created_at=created_at,
        origin=Origin.READ_BACK,
        format="+".join(sorted({layout.format for layout in how.layouts})) or UNKNOWN_FORMAT,
        writer=Writer(ckptguard=__version__),
        files=tuple(_read_files(store, listing, how, progress)),
    )
    save_ids = {layout.save_id for layout in how.layouts} - {None}
    save_id = save_ids.pop() if len(save_ids) == 1 else None
    return replace(manifest, save_id=save_id or default_save_id(identity(manifest)))


def _read_files(
    store: Store, listing: Listing, how: ReadBack, progress: ProgressListener | None
) -> Iterator[ManifestFile]:
    stats = [stat for path, stat in sorted(listing.files.items()) if _is_listed(path, how.ignored)]
    paths = {stat.path: path for path, stat in listing.files.items()}
    roles = _roles(how.layouts)
    reader = _Reader(store, how.block_bytes, _meter(stats, progress))
    with ThreadPoolExecutor(how.jobs, thread_name_prefix="ckptguard-manifest") as pool:
        for start in range(0, len(stats), _BATCH_FILES):
            batch = stats[start : start + _BATCH_FILES]
            for stat, checksum in zip(batch, pool.map(reader.checksum, batch), strict=True):
                path = paths[stat.path]
                yield ManifestFile(
                    path=path,
                    role=roles.get(path, Role.SIDECAR),
                    length_bytes=stat.length_bytes,
                    checksum=checksum,
                    checksum_source=ChecksumSource.STORAGE,
                )


def _is_listed(path: str, ignored: Sequence[str]) -> bool:
    name = path.rpartition("/")[2]
    return not is_left_by_ckptguard(path) and not any(
        fnmatch.fnmatchcase(name, pattern) for pattern in ignored
    )


def _roles(layouts: Sequence[Layout]) -> Mapping[str, Role]:
    shards = {shard.path: Role.SHARD for layout in layouts for shard in layout.shards}
    return shards | {file.path: Role.METADATA for layout in layouts for file in layout.metadata_files}


def _meter(stats: Sequence[ObjectStat], progress: ProgressListener | None) -> ProgressMeter:
    total = sum(stat.length_bytes for stat in stats)
    return ProgressMeter(progress, phase="hashing", bytes_total=total, files_total=len(stats))


class _Reader:
    """Hashes files, one per call, with one buffer per thread."""

    def __init__(self, store: Store, block_bytes: int, meter: ProgressMeter) -> None:
        self._store, self._block_bytes, self._meter = store, block_bytes, meter
        self._of_thread = threading.local()

    def checksum(self, listed: ObjectStat) -> Checksum:
        """Read a file to its end, and make sure that it is the one that was listed."""
        state = xxhash.xxh3_128()
        offset = 0
        with self._store.open(listed.path) as reader:
            while offset < listed.length_bytes:
                block = self._buffer()[: listed.length_bytes - offset]
                count = reader.readinto(block, offset)
                if count == 0:
                    break
                state.update(block[:count])
                offset += count
                self._meter.add_bytes(count, file=listed.path)
                reader.will_need(offset, self._block_bytes)
        after = self._store.stat(listed.path)
        is_same = (after.length_bytes, after.version) == (listed.length_bytes, listed.version)
        if offset != listed.length_bytes or not is_same:
            msg = f"changed while it was read ({listed.length_bytes} bytes listed, {offset} read)"
            raise StoreUnavailableError(msg, key=listed.path)
        self._meter.finish_file(listed.path, findings=0)
        return Checksum(algorithm=Algorithm.XXH3_128, hex_digits=state.hexdigest())

    def _buffer(self) -> memoryview:
        if not hasattr(self._of_thread, "buffer"):
            self._of_thread.buffer = memoryview(bytearray(self._block_bytes))
        buffer: memoryview = self._of_thread.buffer
        return buffer


def load_manifest(path: Path, *, limits: ManifestLimits | None = None) -> Manifest:
    """Read a manifest that the user named.

    Raises:
        StoreError: It could not be read.
        ManifestFormatError, UnsupportedFormatError, LimitExceededError: As `parse_manifest`.
    """
    limits = limits or ManifestLimits()
    with translating_os_errors(str(path)), path.open("rb") as stream:
        data = stream.read(limits.max_bytes + 1)
    return parse_manifest(data, limits=limits)


def write_manifest(path: Path, manifest: Manifest) -> bytes:
    """Write a manifest so that at no moment, nor after a crash, half of one stands at `path`.

    Args:
        path: File, or the checkpoint's folder, where it gets its usual name.
        manifest: What to write.

    Returns:
        Its bytes.

    Raises:
        StoreError: It was not written; what stood there before still does.
    """
    is_folder = path.name != MANIFEST_NAME and path.is_dir()
    target = path / MANIFEST_NAME if is_folder else path
    draft = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    data = to_json(manifest)
    with translating_os_errors(str(target)):
        try:
            with draft.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(target.parent)
    return data


def delete_manifest(path: Path) -> None:
    """Remove a manifest before the first byte of a re-save, durably; none there is fine.

    A manifest that outlives the bytes it lists could bless a mixture.

    Raises:
        StoreError: It may still be there.
    """
    with translating_os_errors(str(path)):
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_folder(path.parent)

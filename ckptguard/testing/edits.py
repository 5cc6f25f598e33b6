"""Edits of files that leave no trace but the bytes, and copies whose times are in order.

Storage that rots, truncates or loses a page changes no modification time, so these
edits put the times back; a case about times sets them itself.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ckptguard.testing.case import Damage

WRITTEN_AT_S: Final = 1_767_225_600  # 2026-01-01T00:00:00Z
"""Modification time of all shards of a copy, in seconds of the epoch."""
COMMITTED_AT_S: Final = WRITTEN_AT_S + 1
"""Modification time of its metadata: written last."""
_SHOWN_BYTES: Final = 16


def copy_tree(source: Path, destination: Path) -> Path:
    """Copy a checkpoint with its times, writable; links become what they point at.

    Raises:
        FileExistsError: The destination exists; nothing is ever overwritten.
    """
    shutil.copytree(source, destination)
    for path in (destination, *destination.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return destination


def copy_checkpoint(source: Path, destination: Path) -> Path:
    """Copy a checkpoint and put its times in the order of a clean save.

    Raises:
        FileExistsError: As `copy_tree`.
    """
    set_times(copy_tree(source, destination))
    return destination


def set_times(folder: Path) -> None:
    """Give every file the time of a clean save: shards first, metadata last."""
    for path in folder.rglob("*"):
        if path.is_file():
            moment = COMMITTED_AT_S if path.name.endswith(".metadata") else WRITTEN_AT_S
            os.utime(path, (moment, moment))


def set_time(path: Path, moment_s: float) -> None:
    """Set one file's modification time, in seconds of the epoch."""
    os.utime(path, (moment_s, moment_s))


@contextmanager
def times_kept(path: Path) -> Iterator[None]:
    """Put a file's times back after the block."""
    before = path.stat()
    yield
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_bit(folder: Path, file: str, *, offset: int, bit: int, fqn: str | None = None) -> Damage:
    """Invert one bit of one byte."""
    path = folder / file
    with times_kept(path), path.open("r+b") as stream:
        stream.seek(offset)
        before = stream.read(1)
        after = bytes([before[0] ^ (1 << bit)])
        stream.seek(offset)
        stream.write(after)
    return Damage(
        kind="bit_flip",
        file=file,
        offset=offset,
        length_bytes=1,
        bit=bit,
        fqn=fqn,
        before=before.hex(),
        after=after.hex(),
    )


def overwrite(folder: Path, file: str, *, offset: int, data: bytes, kind: str = "overwrite") -> Damage:
    """Write bytes over those at an offset; the length stays."""
    path = folder / file
    with times_kept(path), path.open("r+b") as stream:
        stream.seek(offset)
        before = stream.read(len(data))
        stream.seek(offset)
        stream.write(data[: len(before)])
    return Damage(
        kind=kind,
        file=file,
        offset=offset,
        length_bytes=len(before),
        before=before[:_SHOWN_BYTES].hex(),
        after=data[: len(before)][:_SHOWN_BYTES].hex(),
    )


def zero_range(folder: Path, file: str, *, offset: int, length_bytes: int) -> Damage:
    """Write zeros, as a lost page leaves them."""
    return overwrite(folder, file, offset=offset, data=bytes(length_bytes), kind="zero_range")


def make_sparse(folder: Path, file: str) -> Damage:
    """Turn a file into one hole of its own length."""
    path = folder / file
    length = path.stat().st_size
    with times_kept(path), path.open("r+b") as stream:
        stream.truncate(0)
        stream.truncate(length)
    return Damage(kind="sparse_hole", file=file, offset=0, length_bytes=length)


def truncate(folder: Path, file: str, *, length_bytes: int) -> Damage:
    """Cut a file so that `length_bytes` remain."""
    path = folder / file
    before = path.stat().st_size
    with times_kept(path):
        os.truncate(path, length_bytes)
    return Damage(kind="truncate", file=file, offset=length_bytes, length_bytes=before - length_bytes)


def truncate_by(folder: Path, file: str, *, removed_bytes: int) -> Damage:
    """Cut bytes off a file's end; a file that is shorter becomes empty."""
    length = (folder / file).stat().st_size
    return truncate(folder, file, length_bytes=max(0, length - removed_bytes))


def insert(folder: Path, file: str, *, offset: int, data: bytes) -> Damage:
    """Put bytes in, shifting what follows."""
    path = folder / file
    whole = path.read_bytes()
    with times_kept(path):
        path.write_bytes(whole[:offset] + data + whole[offset:])
    return Damage(
        kind="insert", file=file, offset=offset, length_bytes=len(data), after=data[:_SHOWN_BYTES].hex()
    )


def append(folder: Path, file: str, *, data: bytes) -> Damage:
    """Put bytes behind a file's end."""
    return insert(folder, file, offset=(folder / file).stat().st_size, data=data)


def remove(folder: Path, file: str) -> Damage:
    """Delete a file."""
    length = (folder / file).stat().st_size
    (folder / file).unlink()
    return Damage(kind="missing", file=file, offset=0, length_bytes=length)


def swap(folder: Path, first: str, second: str) -> Damage:
    """Exchange two files' names; each keeps its own time."""
    aside = folder / f"{first}.swapping"
    (folder / first).rename(aside)
    (folder / second).rename(folder / first)
    aside.rename(folder / second)
    return Damage(kind="swap", file=first, note=f"exchanged with {second}")


def replace(folder: Path, file: str, source: Path, *, modified_at_s: float | None = None) -> Damage:
    """Put the bytes of `source` in place of a file's; without a time given it keeps its own."""
    path = folder / file
    with times_kept(path):
        path.write_bytes(source.read_bytes())
    if modified_at_s is not None:
        set_time(path, modified_at_s)
    return Damage(kind="replace", file=file, note=f"bytes of {source.parent.name}/{source.name}")

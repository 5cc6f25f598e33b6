"""Edits of a `.metadata` that this kit has written itself, with torch's own classes.

Never for a checkpoint from anywhere else: this is the one place that unpickles.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckptguard.testing.edits import times_kept

METADATA: Final = ".metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """One entry of `storage_data`.

    Args:
        fqn: Tensor or object.
        corner: First element of the slice held here; None for objects.
        file: Shard, relative to the checkpoint.
        offset: First byte in the shard.
        length_bytes: Bytes in the shard.
    """

    fqn: str
    corner: tuple[int, ...] | None
    file: str
    offset: int
    length_bytes: int


def read_metadata(folder: Path) -> Any:  # noqa: ANN401 - torch's Metadata, without importing torch
    """Return torch's `Metadata` object of a checkpoint that this kit wrote."""
    with (folder / METADATA).open("rb") as stream:
        return pickle.load(stream)  # noqa: S301, TID251 - our own file, just written


def edit_metadata(folder: Path, change: Callable[[Any], None]) -> None:
    """Change the metadata in place and write it as torch does; its time stays."""
    metadata = read_metadata(folder)
    change(metadata)
    path = folder / METADATA
    with times_kept(path), path.open("wb") as stream:
        pickle.dump(metadata, stream)


def stored_items(folder: Path) -> Iterator[StoredItem]:
    """Yield every entry, in the order of the metadata."""
    for index, info in read_metadata(folder).storage_data.items():
        yield StoredItem(
            fqn=index.fqn,
            corner=None if index.offset is None else tuple(index.offset),
            file=info.relative_path,
            offset=info.offset,
            length_bytes=info.length,
        )


def find_item(folder: Path, fqn: str, corner: tuple[int, ...] | None = None) -> StoredItem:
    """Return the entry of one slice; without a corner the first of this FQN."""
    return next(
        item for item in stored_items(folder) if item.fqn == fqn and (corner is None or item.corner == corner)
    )

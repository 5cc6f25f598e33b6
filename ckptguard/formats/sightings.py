"""What stands in a folder that no adapter recognises: marker files of other formats, and counts."""

import re
from collections import Counter
from pathlib import PurePosixPath
from typing import Final

from ckptguard.formats.folder_tree import FolderTree

_MARKERS: Final = {
    ".snapshot_metadata": "torchsnapshot",
    "_CHECKPOINT_METADATA": "orbax",
    "manifest.ocdbt": "orbax (ocdbt)",
    ".zarray": "zarr",
    "zarr.json": "zarr",
}
_WEAK_MARKERS: Final = {"commit_success.txt": "orbax", "saved_model.pb": "TensorFlow"}
"""These may stand beside a checkpoint that we do read, and say nothing against it."""
_RANK_PT: Final = re.compile(r".+_\d+\.pt")
TORCH_CHECKPOINTING: Final = "metadata.pkl"
_MAX_DEPTH: Final = 8
_MOST_COMMON: Final = 3
LITTER: Final = re.compile(r"\.DS_Store|\._.*|\.nfs.*|.*\.sw[op]|.*~|Thumbs\.db|desktop\.ini")


def foreign_marker(names: tuple[str, ...]) -> str | None:
    """Name the format, and the file that gives it away, of data that no adapter here reads.

    Args:
        names: Files directly in the folder.
    """
    for marker, format_name in _MARKERS.items():
        if marker in names:
            return f"{format_name}: {marker}"
    return f"torch_checkpointing: {TORCH_CHECKPOINTING}" if is_torch_checkpointing(names) else None


def is_torch_checkpointing(names: tuple[str, ...]) -> bool:
    """Say whether a folder is one of Meta's torch_checkpointing.

    Its `model_0.pt` look like torch.save files; which of them belong together, and to what,
    only its `metadata.pkl` tells.
    """
    return TORCH_CHECKPOINTING in names and any(map(_RANK_PT.fullmatch, names))


def describe(tree: FolderTree, folder: str) -> tuple[str, ...]:
    """Say what was seen in a folder and below it, for a person; empty if nothing but litter.

    Returns:
        Markers of known formats first, then the most frequent kinds of files.
    """
    kinds: Counter[str] = Counter()
    markers: dict[str, str] = {}
    for place in tree.folders_below(folder, max_depth=_MAX_DEPTH):
        names = tuple(name for name in tree.files.get(place, ()) if not LITTER.fullmatch(name))
        kinds.update(PurePosixPath(name).suffix or "no suffix" for name in names)
        marker = foreign_marker(names) or _weak_marker(names)
        if marker is not None:
            markers.setdefault(marker, _in(marker, place, folder))
    counted = [f"{count} of {kind}" for kind, count in kinds.most_common(_MOST_COMMON)]
    shown = list(markers.values())[:_MOST_COMMON]
    return (*shown, f"{kinds.total()} files: {', '.join(counted)}") if counted else ()


def _weak_marker(names: tuple[str, ...]) -> str | None:
    return next((f"{_WEAK_MARKERS[name]}: {name}" for name in names if name in _WEAK_MARKERS), None)


def _in(marker: str, place: str, folder: str) -> str:
    inner = place.removeprefix(folder).strip("/")
    return f"{marker} in {inner}" if inner else marker


def foreign_below(tree: FolderTree, folder: str, *, except_in: frozenset[str]) -> str | None:
    """Return the first marker of another format at or below a folder.

    Args:
        tree: Names.
        folder: Where to look.
        except_in: Folders whose adapter answers for all that stands in and below them.
    """
    for place in tree.folders_below(folder, max_depth=_MAX_DEPTH):
        marker = foreign_marker(tree.files.get(place, ()))
        if marker is not None and not any(_is_within(place, owned) for owned in except_in):
            return _in(marker, place, folder)
    return None


def _is_within(place: str, folder: str) -> bool:
    return not folder or place == folder or place.startswith(f"{folder}/")

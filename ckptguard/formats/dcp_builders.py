"""Which globals of a `.metadata` become which of our values."""

from typing import Final

from ckptguard.formats.dcp_shortcuts import (
    METADATA_MODULE,
    PROPERTIES_GLOBALS,
    STORAGE_INFO_GLOBALS,
    bind_chunks,
    bind_stored,
    bind_tensors,
)
from ckptguard.formats.dcp_values import (
    BytesEntry,
    Chunk,
    Dtype,
    MemoryFormat,
    Metadata,
    MetadataIndex,
    Properties,
    StandIn,
    StorageInfo,
    StorageMeta,
    TensorEntry,
)
from ckptguard.formats.pickle_machine import ShortcutFactory
from ckptguard.formats.pickle_reader import Buildable, Builder, Constant
from ckptguard.formats.torch_dtypes import ITEMSIZES

_PATH_CLASSES: Final = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")
PATH_GLOBALS: Final = frozenset(
    f"{module}.{name}" for module in ("pathlib", "pathlib._local") for name in _PATH_CLASSES
)
"""`storage_meta.checkpoint_id`; Python 3.13 moved the classes to `pathlib._local`."""

_LAYOUTS: Final = "torch.serialization._get_layout"
_LAYOUT_NAMES: Final = tuple(
    f"torch.{name}"
    for name in (
        "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged",
    )
)  # fmt: skip
"""`_get_layout` looks its argument up among torch's own (torch 2.13, serialization.py)."""
_MEMORY_FORMATS: Final = (
    f"{METADATA_MODULE}._MEM_FORMAT_ENCODING",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
)

PLANNER_GLOBALS: Final = frozenset(
    f"torch.distributed.checkpoint.planner.{name}"
    for name in ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData", "BytesIOWriteData")
)
"""Megatron-core keeps every rank's plan in the metadata; we keep it as data that nobody reads."""


def _make(cls: type[Buildable], shortcut: ShortcutFactory | None = None) -> Builder:
    def make(args: tuple[object, ...]) -> Buildable:
        if args:
            msg = f"{cls.__name__} is made with arguments"
            raise ValueError(msg)
        return cls()

    return Builder(make, shortcut)


def _one_of(*values: object, cls: type[StandIn] | type[MemoryFormat] = StandIn) -> Builder:
    """Build what torch makes of its only argument, which must be one of these."""

    def make(args: tuple[object, ...]) -> StandIn | MemoryFormat:
        if len(args) != 1 or not any(type(args[0]) is type(value) and args[0] == value for value in values):
            msg = "a memory format or layout that torch does not have"
            raise ValueError(msg)
        return cls(args)

    return Builder(make)


def _size(args: tuple[object, ...]) -> object:
    """torch.Size: the tuple that it is made of, itself, because it may be shared by millions."""
    if len(args) > 1:
        msg = f"a torch.Size of {len(args)} arguments"
        raise ValueError(msg)
    return args[0] if args else ()


BUILDERS: Final[dict[str, Builder | Constant]] = {
    f"{METADATA_MODULE}.Metadata": _make(Metadata),
    f"{METADATA_MODULE}.MetadataIndex": _make(MetadataIndex, bind_stored),
    f"{METADATA_MODULE}.TensorStorageMetadata": _make(TensorEntry, bind_tensors),
    f"{METADATA_MODULE}.ChunkStorageMetadata": _make(Chunk, bind_chunks),
    f"{METADATA_MODULE}.BytesStorageMetadata": _make(BytesEntry),
    f"{METADATA_MODULE}.StorageMeta": _make(StorageMeta),
    **dict.fromkeys(PROPERTIES_GLOBALS, _make(Properties)),
    **dict.fromkeys(STORAGE_INFO_GLOBALS, _make(StorageInfo)),
    **dict.fromkeys(_MEMORY_FORMATS, _one_of(0, 1, 2, cls=MemoryFormat)),
    **dict.fromkeys(PATH_GLOBALS, Builder(StandIn)),
    _LAYOUTS: _one_of(*_LAYOUT_NAMES),
    "torch.Size": Builder(_size),
    **{f"torch.{name}": Constant(Dtype(name)) for name in ITEMSIZES},
}
"""By `module.name`, for `ckptguard.formats.pickle_reader.read_pickle`."""

KNOWN_GLOBALS: Final = frozenset(BUILDERS) | PLANNER_GLOBALS
"""Every global that a `.metadata` of a supported writer names; none of them can do harm."""

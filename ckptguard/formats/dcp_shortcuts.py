"""Shortcuts for the three classes that make up nearly all of a `.metadata`.

Each is bound to one reading and keeps what it learned there. Sizes and tensor
properties repeat over and over: they are built once per distinct spelling, keyed by
the bytes, whose hash nobody can predict. That also shares them, which halves the memory.
"""

import re
from typing import Final

from ckptguard.formats.dcp_values import (
    Dtype,
    MemoryFormat,
    MetadataIndex,
    Properties,
    StorageInfo,
    TensorEntry,
)
from ckptguard.formats.pickle_machine import SKIPPED, Machine, Shortcut
from ckptguard.formats.pickle_shortcut import (
    GET,
    SIZE_ARGS,
    TEXT,
    UINT,
    Learner,
    Template,
    instance_start,
    is_global,
    is_text,
    recalled,
    size_of,
    uint,
)
from ckptguard.formats.pickle_values import GlobalRef
from ckptguard.model.layout import Slice

METADATA_MODULE: Final = "torch.distributed.checkpoint.metadata"
STORAGE_INFO_GLOBALS: Final = (
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "olmo_core.distributed.checkpoint.filesystem._StorageInfo",
)
PROPERTIES_GLOBALS: Final = (
    f"{METADATA_MODULE}.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
)

_NEW: Final = rb"\)\x81"  # EMPTY_TUPLE NEWOBJ
_STATE: Final = rb"\x94\}\x94\("  # MEMOIZE EMPTY_DICT MEMOIZE MARK
_DONE: Final = b"ub"  # SETITEMS BUILD
_TEXT_OR_GET: Final = b"(?:" + TEXT + b"|(" + GET + b"))"

_REFERENCE: Final = re.compile(GET, re.DOTALL)

_is_size = is_global("torch.Size")
_is_properties = is_global(*PROPERTIES_GLOBALS)

_HEAD: Final = (
    b"(?:" + TEXT + b")?{entry}" + _NEW + _STATE
    + b"{properties}(" + GET + _NEW + rb"\x94\(" + GET * 2 + rb"[\x88\x89]" + GET + rb"[\x88\x89]t\x94b)"
    + b"{extent}{size}" + SIZE_ARGS
    + rb"{chunks}\]\x94"
)  # fmt: skip
_CHUNK_OPCODES: Final = (
    b"{chunk}" + _NEW + _STATE + b"{offsets}{size_1}" + SIZE_ARGS + b"{sizes}{size_2}" + SIZE_ARGS + _DONE
)
_HEAD_MEANINGS: Final = {
    "entry": is_global(f"{METADATA_MODULE}.TensorStorageMetadata"),
    "properties": is_text("properties"),
    "extent": is_text("size"),
    "size": _is_size,
    "chunks": is_text("chunks"),
}
_CHUNK_MEANINGS: Final = {
    "chunk": is_global(f"{METADATA_MODULE}.ChunkStorageMetadata"),
    "offsets": is_text("offsets"),
    "size_1": _is_size,
    "sizes": is_text("sizes"),
    "size_2": _is_size,
}

_CHUNK: Final = Template(_CHUNK_OPCODES, _CHUNK_MEANINGS)
"""ChunkStorageMetadata."""

_TENSOR: Final = Template(_HEAD, _HEAD_MEANINGS)
"""TensorStorageMetadata, after its FQN or not, up to its still empty list of chunks."""

_WHOLE_TENSOR: Final = Template(_HEAD + _CHUNK_OPCODES + b"a" + _DONE, {**_HEAD_MEANINGS, **_CHUNK_MEANINGS})
"""A TensorStorageMetadata that has one chunk."""

_STORED: Final = Template(
    b"{key}" + _NEW + _STATE
    + b"{fqn}" + _TEXT_OR_GET
    + b"{index}(?:N|" + UINT + b")"
    + b"(?:{corner}{size}" + SIZE_ARGS + b")?" + _DONE
    + b"{info}" + _NEW + _STATE
    + b"{path}" + _TEXT_OR_GET
    + b"{first}(" + UINT + b"){length}(" + UINT + b")"
    + rb"(?:{transforms}\]\x94" + TEXT + b"a)?" + _DONE,
    {
        "key": is_global(f"{METADATA_MODULE}.MetadataIndex"),
        "fqn": is_text("fqn"),
        "index": is_text("index"),
        "corner": is_text("offset"),
        "size": _is_size,
        "info": is_global(*STORAGE_INFO_GLOBALS),
        "path": is_text("relative_path"),
        "first": is_text("offset"),
        "length": is_text("length"),
        "transforms": is_text("transform_descriptors"),
    },
)  # fmt: skip
"""`storage_data`: a MetadataIndex and its _StorageInfo."""

_NOTHING: Final = (None, ())


class _Sizes(dict[bytes, tuple[tuple[int, ...], tuple[object, ...]]]):
    """By spelling: a `torch.Size((…))`, and what making it leaves in the memo."""

    def __missing__(self, raw: bytes) -> tuple[tuple[int, ...], tuple[object, ...]]:
        size = size_of(raw)
        made = self[raw] = (size, (SKIPPED, size) if raw == b")" else (SKIPPED, SKIPPED, size))
        return made


def bind_stored(machine: Machine, ref: GlobalRef) -> Shortcut:
    """Bind the shortcut of MetadataIndex."""
    return _StoredShortcut(machine, ref)


def bind_tensors(machine: Machine, ref: GlobalRef) -> Shortcut:
    """Bind the shortcut of TensorStorageMetadata."""
    return _TensorShortcut(machine, ref)


def bind_chunks(machine: Machine, ref: GlobalRef) -> Shortcut:
    """Bind the shortcut of ChunkStorageMetadata."""
    return _ChunkShortcut(machine, ref)


class _StoredShortcut:
    """Reads runs of `storage_data` entries, key and value."""

    __slots__ = ("_learner", "_machine", "_ref", "_sizes", "_strings")

    def __init__(self, machine: Machine, ref: GlobalRef) -> None:
        self._machine = machine
        self._ref = ref
        self._learner = Learner(_STORED, machine)
        self._sizes = _Sizes()
        self._strings = _Recalled(machine)

    def __call__(self, pos: int) -> int:
        start = instance_start(self._machine, pos, self._ref)
        match = None if start is None else self._learner.match(start)
        while match is not None and self._push(match):
            pos = match.end()
            match = self._learner.again(self._machine.data, pos)
        return pos

    def _push(self, match: re.Match[bytes]) -> bool:
        """Push key and value; change nothing and return False if they are not what they seem."""
        num_fqn, fqn_raw, fqn_ref, size_raw, num_path, path_raw, path_ref, *rest = match.groups()
        first, length, num_transform, transform_raw = rest
        fqn = _string(num_fqn, fqn_raw) if fqn_ref is None else self._strings[fqn_ref]
        path = _string(num_path, path_raw) if path_ref is None else self._strings[path_ref]
        offset, left_by_offset = _NOTHING if size_raw is None else self._sizes[size_raw]
        if fqn is None or path is None:
            return False
        index = MetadataIndex(fqn, offset)
        info = StorageInfo(path, uint(first), uint(length))
        left = [index, SKIPPED, *left_by_offset, info, SKIPPED]
        if path_ref is None:
            left.append(path)
        if fqn_ref is None:
            left.insert(2, fqn)
        if transform_raw is not None:
            transform = _string(num_transform, transform_raw)
            if transform is None:
                return False
            info.transform_descriptors = [transform]
            left += (info.transform_descriptors, transform)
        self._machine.memo.extend(left)
        self._machine.stack += (index, info)
        return True


class _ChunkReader:
    """Reads runs of chunks, class and all."""

    __slots__ = ("_learner", "_machine", "_sizes")

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._learner = Learner(_CHUNK, machine)
        self._sizes = _Sizes()

    def read(self, pos: int, chunks: list[Slice], left: list[object]) -> int:
        """Append chunks, and what they leave in the memo; return where they end."""
        match = self._learner.match(pos)
        while match is not None:
            self.append(match[1], match[2], chunks, left)
            pos = match.end()
            match = self._learner.again(self._machine.data, pos)
        return pos

    def append(self, offsets_raw: bytes, sizes_raw: bytes, chunks: list[Slice], left: list[object]) -> None:
        """Append the chunk of two sizes."""
        offsets, left_by_offsets = self._sizes[offsets_raw]
        sizes, left_by_sizes = self._sizes[sizes_raw]
        part = tuple.__new__(Slice, (offsets, sizes))  # as Slice(...), in half the time
        chunks.append(part)
        left += (part, SKIPPED, *left_by_offsets, *left_by_sizes)


class _ChunkShortcut:
    """Reads runs of chunks, of tensors that have many."""

    __slots__ = ("_machine", "_reader", "_ref")

    def __init__(self, machine: Machine, ref: GlobalRef) -> None:
        self._machine = machine
        self._ref = ref
        self._reader = _ChunkReader(machine)

    def __call__(self, pos: int) -> int:
        start = instance_start(self._machine, pos, self._ref)
        if start is None:
            return pos
        left: list[object] = []
        chunks: list[Slice] = []
        end = self._reader.read(start, chunks, left)
        self._machine.memo.extend(left)
        self._machine.stack += chunks
        return end if chunks else pos


class _TensorShortcut:
    """Reads runs of tensors: entries of `state_dict_metadata`."""

    __slots__ = ("_chunks", "_head", "_machine", "_properties", "_ref", "_sizes", "_whole")

    def __init__(self, machine: Machine, ref: GlobalRef) -> None:
        self._machine = machine
        self._ref = ref
        self._whole = Learner(_WHOLE_TENSOR, machine)
        self._head = Learner(_TENSOR, machine)
        self._chunks = _ChunkReader(machine)
        self._sizes = _Sizes()
        self._properties: dict[bytes, Properties] = {}

    def __call__(self, pos: int) -> int:
        start = instance_start(self._machine, pos, self._ref)
        end = None if start is None else self._entry(start)
        while end is not None:
            pos = end
            end = self._entry(pos)
        return pos

    def _entry(self, pos: int) -> int | None:
        """Push a tensor, after its FQN if that stands there as well; return where it ends."""
        match = self._whole.match(pos) or self._head.match(pos)
        if match is None:
            return None
        num_fqn, fqn_raw, properties_raw, size_raw = match.group(1, 2, 3, 4)
        properties = self._properties.get(properties_raw) or self._new_properties(properties_raw)
        fqn = None if fqn_raw is None else _string(num_fqn, fqn_raw)
        if properties is None or (fqn is None and fqn_raw is not None):
            return None
        size, left_by_size = self._sizes[size_raw]
        chunks: list[Slice] = []
        entry = TensorEntry(properties, size, chunks)
        left = [entry, SKIPPED, SKIPPED, SKIPPED, *left_by_size, SKIPPED]
        end: int | None = match.end()
        if match.re.groups > 4:  # noqa: PLR2004 - the two sizes of `_WHOLE_TENSOR`
            self._chunks.append(match[5], match[6], chunks, left)
        else:
            end = self._list_of_chunks(match.end(), chunks, left)
        if end is not None:
            self._push(fqn, entry, left)
        return end

    def _push(self, fqn: str | None, entry: TensorEntry, left: list[object]) -> None:
        memo, stack = self._machine.memo, self._machine.stack
        if fqn is not None:
            memo.append(fqn)
            stack.append(fqn)
        memo.extend(left)
        stack.append(entry)

    def _list_of_chunks(self, pos: int, chunks: list[Slice], left: list[object]) -> int | None:
        """Fill the list of a tensor of several chunks and close the tensor; return where that ends."""
        data = self._machine.data
        while data.startswith(b"(", pos):  # MARK … APPENDS, in batches of 1,000
            pos = self._chunks.read(pos + 1, chunks, left)
            if not data.startswith(b"e", pos):
                return None
            pos += 1
        return pos + len(_DONE) if chunks and data.startswith(_DONE, pos) else None

    def _new_properties(self, raw: bytes) -> Properties | None:
        """Look up what the references of properties not met before stand for."""
        ref, *rest = (recalled(self._machine, get) for get in _REFERENCE.findall(raw))
        dtype = rest[0]
        if not _is_properties(ref) or type(dtype) is not Dtype or any(value is SKIPPED for value in rest):
            return None
        if type(rest[-1]) is not MemoryFormat:
            return None
        made = self._properties[raw] = Properties(dtype)
        return made


class _Recalled(dict[bytes, str | None]):
    """By GET: the string that it recalls; None where it is none, or the opcodes must decide."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def __missing__(self, ref: bytes) -> str | None:
        found = recalled(self._machine, ref)
        made = self[ref] = found if type(found) is str else None
        return made


def _string(length: bytes, raw: bytes) -> str | None:
    """Return the string of a short string opcode; None if its length is not where it ends."""
    return str(raw, "ascii") if length[0] == len(raw) else None

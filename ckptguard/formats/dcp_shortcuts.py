"""Shortcuts for the three classes that make up nearly all of a `.metadata`.

Each is bound to one reading and keeps what it learned there. Sizes and tensor
properties repeat over and over: they are built once per distinct spelling, keyed by
the bytes, whose hash nobody can predict. That also shares them, which halves the memory.
"""

import re
from typing import Final

from ckptguard.formats.dcp_values import Dtype, MetadataIndex, Properties, StorageInfo, TensorEntry
from ckptguard.formats.pickle_machine import SKIPPED, Machine, Shortcut
from ckptguard.formats.pickle_shortcut import (
    GET,
    SIZE_ARGS,
    TEXT,
    UINT,
    Learner,
    Template,
    is_global,
    is_text,
    reference_before,
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

_STORED: Final = Template(
    _STATE
    + b"{fqn}"
    + _TEXT_OR_GET
    + b"{index}(?:N|"
    + UINT
    + b")"
    + b"(?:{offset}{size}"
    + SIZE_ARGS
    + b")?"
    + _DONE
    + b"{info}"
    + _NEW
    + _STATE
    + b"{path}"
    + _TEXT_OR_GET
    + b"{first}("
    + UINT
    + b"){length}("
    + UINT
    + b")"
    + rb"(?:{transforms}\]\x94"
    + TEXT
    + b"a)?"
    + _DONE,
    {
        "fqn": is_text("fqn"),
        "index": is_text("index"),
        "offset": is_text("offset"),
        "size": _is_size,
        "info": is_global(*STORAGE_INFO_GLOBALS),
        "path": is_text("relative_path"),
        "first": is_text("offset"),
        "length": is_text("length"),
        "transforms": is_text("transform_descriptors"),
    },
)
"""`storage_data`: a MetadataIndex and its _StorageInfo."""

_TENSOR: Final = Template(
    _STATE
    + b"{properties}("
    + GET
    + _NEW
    + rb"\x94\("
    + GET * 2
    + rb"[\x88\x89]"
    + GET
    + rb"[\x88\x89]t\x94b)"
    + b"{extent}{size}"
    + SIZE_ARGS
    + rb"{chunks}\]\x94",
    {
        "properties": is_text("properties"),
        "extent": is_text("size"),
        "size": _is_size,
        "chunks": is_text("chunks"),
    },
)
"""TensorStorageMetadata up to its still empty list of chunks."""

_CHUNK: Final = Template(
    b"{chunk}" + _NEW + _STATE + b"{offsets}{size_1}" + SIZE_ARGS + b"{sizes}{size_2}" + SIZE_ARGS + _DONE,
    {
        "chunk": is_global(f"{METADATA_MODULE}.ChunkStorageMetadata"),
        "offsets": is_text("offsets"),
        "size_1": _is_size,
        "sizes": is_text("sizes"),
        "size_2": _is_size,
    },
)
"""ChunkStorageMetadata, from its class on."""


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

    __slots__ = ("_learner", "_machine", "_ref", "_sizes")

    def __init__(self, machine: Machine, ref: GlobalRef) -> None:
        self._machine = machine
        self._ref = ref
        self._learner = Learner(_STORED, machine)
        self._sizes = _Sizes()

    def __call__(self, pos: int) -> int:
        match = self._learner.match(pos)
        if match is None or not self._push(match):
            return pos
        data, again = self._machine.data, _again(self._machine, pos, self._ref)
        while again is not None and data.startswith(again, match.end()):
            following = self._learner.match(match.end() + len(again))
            if following is None or not self._push(following):
                break
            match = following
        return match.end()

    def _push(self, match: re.Match[bytes]) -> bool:
        """Push key and value; change nothing and return False if they are not what they seem."""
        num_fqn, fqn_raw, fqn_ref, size_raw, num_path, path_raw, path_ref = match.group(1, 2, 3, 4, 5, 6, 7)
        first, length, num_transform, transform = match.group(8, 9, 10, 11)
        fqn = _string(self._machine, fqn_ref, num_fqn, fqn_raw)
        path = _string(self._machine, path_ref, num_path, path_raw)
        if fqn is None or path is None or (transform is not None and num_transform[0] != len(transform)):
            return False
        offset, left_by_offset = (None, ()) if size_raw is None else self._sizes[size_raw]
        index = MetadataIndex(fqn, offset)
        info = StorageInfo(path, uint(first), uint(length))
        left = [index, SKIPPED, *left_by_offset, info, SKIPPED]
        if path_ref is None:
            left.append(path)
        if fqn_ref is None:
            left.insert(2, fqn)
        if transform is not None:
            name = str(transform, "ascii")
            info.transform_descriptors = [name]
            left += (info.transform_descriptors, name)
        self._machine.memo.extend(left)
        self._machine.stack += (index, info)
        return True


class _ChunkReader:
    """Reads one chunk, class and all."""

    __slots__ = ("_learner", "_sizes")

    def __init__(self, machine: Machine) -> None:
        self._learner = Learner(_CHUNK, machine)
        self._sizes = _Sizes()

    def read(self, pos: int, left: list[object]) -> tuple[Slice, int] | None:
        """Return a slice and where it ends, and append what it leaves in the memo."""
        match = self._learner.match(pos)
        if match is None:
            return None
        offsets_raw, sizes_raw = match.group(1, 2)
        offsets, left_by_offsets = self._sizes[offsets_raw]
        sizes, left_by_sizes = self._sizes[sizes_raw]
        part = Slice(offsets, sizes)
        left += (part, SKIPPED, *left_by_offsets, *left_by_sizes)
        return part, match.end()


class _ChunkShortcut:
    """Reads runs of chunks, of tensors that have many."""

    __slots__ = ("_machine", "_reader", "_ref")

    def __init__(self, machine: Machine, ref: GlobalRef) -> None:
        self._machine = machine
        self._ref = ref
        self._reader = _ChunkReader(machine)

    def __call__(self, pos: int) -> int:
        again = _again(self._machine, pos, self._ref)
        if again is None:
            return pos
        left: list[object] = []
        parts: list[Slice] = []
        start = pos - len(again)
        while (found := self._reader.read(start, left)) is not None:
            part, start = found
            parts.append(part)
        if not parts:
            return pos
        self._machine.memo.extend(left)
        self._machine.stack += parts
        return start


class _TensorShortcut:
    """Reads runs of tensors: entries of `state_dict_metadata`."""

    __slots__ = ("_chunks", "_learner", "_machine", "_properties", "_ref", "_sizes")

    def __init__(self, machine: Machine, ref: GlobalRef) -> None:
        self._machine = machine
        self._ref = ref
        self._learner = Learner(_TENSOR, machine)
        self._chunks = _ChunkReader(machine)
        self._sizes = _Sizes()
        self._properties: dict[bytes, Properties] = {}

    def __call__(self, pos: int) -> int:
        end = self._entry(pos, None)
        again = _again(self._machine, pos, self._ref)
        if end is None or again is None:
            return pos if end is None else end
        pattern = re.compile(TEXT + re.escape(again), re.DOTALL)
        while match := pattern.match(self._machine.data, end):
            fqn = _string(self._machine, None, match[1], match[2])
            following = None if fqn is None else self._entry(match.end(), fqn)
            if following is None:
                break
            end = following
        return end

    def _entry(self, pos: int, fqn: str | None) -> int | None:
        """Push a tensor, after its FQN if that was read as well; return where it ends."""
        match = self._learner.match(pos)
        if match is None:
            return None
        properties_raw, size_raw = match.group(1, 2)
        properties = self._properties.get(properties_raw) or self._new_properties(properties_raw)
        if properties is None:
            return None
        chunks: list[Slice] = []
        size, left_by_size = self._sizes[size_raw]
        entry = TensorEntry(properties, size, chunks)
        left = [entry, SKIPPED, SKIPPED, SKIPPED, *left_by_size, SKIPPED]
        end = self._list_of_chunks(match.end(), chunks, left)
        if end is None:
            return None
        if fqn is not None:
            self._machine.memo.append(fqn)
            self._machine.stack.append(fqn)
        self._machine.memo.extend(left)
        self._machine.stack.append(entry)
        return end

    def _list_of_chunks(self, pos: int, chunks: list[Slice], left: list[object]) -> int | None:
        """Fill the list of one tensor and close the tensor; return where that ends."""
        data = self._machine.data
        if data.startswith(b"(", pos):  # MARK … APPENDS, in batches of 1,000
            while data.startswith(b"(", pos):
                pos = self._run_of_chunks(pos + 1, chunks, left)
                if not data.startswith(b"e", pos):
                    return None
                pos += 1
        else:
            pos = self._run_of_chunks(pos, chunks, left)
            if len(chunks) != 1 or not data.startswith(b"a", pos):
                return None
            pos += 1
        return pos + len(_DONE) if data.startswith(_DONE, pos) else None

    def _run_of_chunks(self, pos: int, chunks: list[Slice], left: list[object]) -> int:
        while (found := self._chunks.read(pos, left)) is not None:
            part, pos = found
            chunks.append(part)
        return pos

    def _new_properties(self, raw: bytes) -> Properties | None:
        """Look up what the references of properties not met before stand for."""
        ref, *rest = (_recall(self._machine, get) for get in _REFERENCE.findall(raw))
        dtype = rest[0]
        if not _is_properties(ref) or type(dtype) is not Dtype or SKIPPED in rest:
            return None
        made = self._properties[raw] = Properties(dtype)
        return made


def _again(machine: Machine, pos: int, ref: GlobalRef) -> bytes | None:
    """Return the opcodes that make one more instance of a class: GET EMPTY_TUPLE NEWOBJ."""
    found = reference_before(machine, pos, ref)
    return None if found is None else found + b")\x81"


def _recall(machine: Machine, raw: bytes) -> object:
    """Return what a GET pushes; `SKIPPED` where the opcodes must decide."""
    index = int.from_bytes(raw[1:], "little")
    return machine.memo[index] if index < len(machine.memo) else SKIPPED


def _string(machine: Machine, ref: bytes | None, length: bytes, raw: bytes) -> str | None:
    """Return the string that a GET recalls or a short string opcode holds; None if it is not sure."""
    if ref is None:
        return str(raw, "ascii") if length[0] == len(raw) else None
    found = _recall(machine, ref)
    return found if type(found) is str else None

"""Pickles put together opcode by opcode: what no pickler would write, and nothing is imported for.

Every function returns the opcodes that push one value; `finished` makes a whole pickle.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

DCP_METADATA: Final = "torch.distributed.checkpoint.metadata"
DCP_FILESYSTEM: Final = "torch.distributed.checkpoint.filesystem"

NONE: Final = b"N"
TRUE: Final = b"\x88"
FALSE: Final = b"\x89"


def finished(value: bytes, *, protocol: int = 4) -> bytes:
    """Return the pickle of one value."""
    return b"\x80" + bytes([protocol]) + value + b"."


def text(value: str) -> bytes:
    """Push a string; lone surrogates are kept."""
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    """Push an integer of any size."""
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<i", len(raw)) + raw


def decimal(value: float) -> bytes:
    """Push a float."""
    return b"G" + struct.pack(">d", value)


def tuple_of(*values: bytes) -> bytes:
    """Push a tuple."""
    return b"(" + b"".join(values) + b"t"


def list_of(values: Iterable[bytes]) -> bytes:
    """Push a list."""
    return b"](" + b"".join(values) + b"e"


def dict_of(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Push a dict; repeated keys are written as often as they are given."""
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def global_of(module: str, name: str) -> bytes:
    """Push a global by GLOBAL, whose names stand in the opcode."""
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def stacked_global(module: str, name: str) -> bytes:
    """Push a global by STACK_GLOBAL, whose names are strings of the stack; dots in `name` are walked."""
    return text(module) + text(name) + b"\x93"


def call(callee: bytes, *args: bytes) -> bytes:
    """Push the result of a call (REDUCE)."""
    return callee + tuple_of(*args) + b"R"


def instance(module: str, name: str, fields: Mapping[str, bytes]) -> bytes:
    """Push an instance with these attributes (NEWOBJ, BUILD)."""
    state = dict_of((text(key), value) for key, value in fields.items())
    return global_of(module, name) + b")\x81" + state + b"b"


def size_of(sizes: Iterable[int]) -> bytes:
    """Push a `torch.Size`."""
    return call(global_of("torch", "Size"), tuple_of(*map(number, sizes)))


def chunk(offsets: bytes, sizes: bytes) -> bytes:
    """Push a ChunkStorageMetadata."""
    return instance(DCP_METADATA, "ChunkStorageMetadata", {"offsets": offsets, "sizes": sizes})


def tensor_entry(size: bytes, chunks: bytes) -> bytes:
    """Push a TensorStorageMetadata of float32."""
    layout = call(global_of("torch.serialization", "_get_layout"), text("torch.strided"))
    contiguous = call(global_of(DCP_METADATA, "_MEM_FORMAT_ENCODING"), number(0))
    state = tuple_of(global_of("torch", "float32"), layout, FALSE, contiguous, FALSE)
    properties = global_of(DCP_METADATA, "TensorProperties") + b")\x81" + state + b"b"
    fields = {"properties": properties, "size": size, "chunks": chunks}
    return instance(DCP_METADATA, "TensorStorageMetadata", fields)


def bytes_entry() -> bytes:
    """Push a BytesStorageMetadata."""
    return instance(DCP_METADATA, "BytesStorageMetadata", {})


def index(fqn: bytes, offset: bytes = NONE) -> bytes:
    """Push a MetadataIndex."""
    return instance(DCP_METADATA, "MetadataIndex", {"fqn": fqn, "offset": offset, "index": NONE})


def stored(path: bytes, offset: bytes, length: bytes, transforms: bytes = NONE) -> bytes:
    """Push a _StorageInfo."""
    fields = {
        "relative_path": path,
        "offset": offset,
        "length": length,
        "transform_descriptors": transforms,
    }
    return instance(DCP_FILESYSTEM, "_StorageInfo", fields)


def metadata(
    entries: Iterable[tuple[bytes, bytes]],
    storage_data: Iterable[tuple[bytes, bytes]],
    planner_data: bytes = NONE,
) -> bytes:
    """Push a Metadata."""
    fields = {
        "state_dict_metadata": dict_of(entries),
        "planner_data": planner_data,
        "storage_data": dict_of(storage_data),
        "storage_meta": NONE,
    }
    return instance(DCP_METADATA, "Metadata", fields)


def float_tensor(num_elements: int) -> bytes:
    """Push a 1-D float32 tensor whose storage is record `data/0`, as torch.save does (protocol 2)."""
    storage = tuple_of(
        text("storage"), global_of("torch", "FloatStorage"), text("0"), text("cpu"), number(num_elements)
    )
    hooks = call(global_of("collections", "OrderedDict"))
    sizes, stride = tuple_of(number(num_elements)), tuple_of(number(1))
    rebuild = global_of("torch._utils", "_rebuild_tensor_v2")
    return call(rebuild, storage + b"Q", number(0), sizes, stride, FALSE, hooks)

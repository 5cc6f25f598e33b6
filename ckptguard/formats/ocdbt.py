"""An OCDBT database, walked: from `manifest.ocdbt` over B-tree nodes to where every value lies.

Only the newest version is walked: that is what a load reads. Each node is checked by its
CRC-32C; the values themselves have none.

Source: tensorstore/kvstore/ocdbt/index.rst, format/btree.cc and format/manifest.cc, 0.1.86.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ckptguard.errors import FormatError, LimitExceededError, UnsupportedFormatError
from ckptguard.formats.dcp_paths import contained
from ckptguard.formats.metadata_files import read_bounded
from ckptguard.formats.ocdbt_codec import (
    MANIFEST_MAGIC,
    MAX_BODY_BYTES,
    MISSING,
    NODE_MAGIC,
    BlockCrcError,
    Columns,
    DataFile,
    NodeRef,
    are_sorted,
    file_of,
    open_block,
    read_file_table,
    read_refs,
    read_texts,
)
from ckptguard.model.layout import MetadataFile
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

MANIFEST: Final = "manifest.ocdbt"
MAX_TREE_BYTES: Final = 256 << 20
"""Of all nodes together, each as often as the tree leads to it; a million keys take 60 MB."""
_SINGLE: Final = 0
_UUID_BYTES: Final = 16
_ZSTD: Final = 1
_ZSTD_LEVEL_BYTES: Final = 4
_MAX_VERSIONS: Final = 1 << 16
_MAX_HEIGHT: Final = 32
_MAX_ARITY: Final = 1 << 20


class Value(NamedTuple):
    """Where the value of a key lies.

    Args:
        path: File, relative to the database; "" where the value stands in its node.
        offset: First byte.
        length_bytes: Its length.
        inline: The value itself, where it stands in its node.
    """

    path: str
    offset: int
    length_bytes: int
    inline: bytes | None = None


class FaultKind(StrEnum):
    """What is wrong with a block."""

    CRC = "crc"  # its bytes are not those that were written
    MALFORMED = "malformed"  # it is not there, or no block
    UNREAD = "unread"  # of a kind, or with a compression, that is not read here


class NodeFault(NamedTuple):
    """A block that cannot be read, so that what is below it is not known.

    Args:
        path: File.
        offset: First byte of the block.
        length_bytes: Of the block, as its parent says; 0 for the manifest.
        reason: What is wrong with it.
        kind: What that makes of it.
    """

    path: str
    offset: int
    length_bytes: int
    reason: str
    kind: FaultKind


@dataclass(slots=True, kw_only=True)
class Database:
    """What was found.

    Args:
        manifest: The manifest, as it was read.
        values: By key.
        nodes: Blocks that hold the tree, in the order in which they were read.
        faults: Blocks that were not read.
    """

    manifest: MetadataFile
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[NodeRef] = field(default_factory=list)
    faults: list[NodeFault] = field(default_factory=list)


class _Walk(NamedTuple):
    ref: NodeRef
    prefix: bytes
    height: int


def read_database(store: Store, listing: Listing, limits: Limits) -> Database:
    """Walk the database in a folder whose manifest is listed.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: More keys than `limits.max_items`, or a block out of proportion.
    """
    data, file = read_bounded(store, listing, MANIFEST, max_bytes=MAX_BODY_BYTES)
    database = Database(manifest=file)
    try:
        root = _root(open_block(data, magic=MANIFEST_MAGIC))
    except (FormatError, UnsupportedFormatError) as error:
        database.faults.append(NodeFault(MANIFEST, 0, 0, str(error), _kind(error)))
        return database
    pending = [root] if root is not None else []
    total_bytes = 0
    while pending:  # heights fall, so that it ends
        walk = pending.pop()
        total_bytes += walk.ref.length_bytes
        if total_bytes > MAX_TREE_BYTES or len(database.values) + len(pending) > limits.max_items:
            msg = f"{MANIFEST} leads to more than {limits.max_items} keys, or {MAX_TREE_BYTES} bytes of nodes"
            raise LimitExceededError(msg)
        pending += _node(store, listing, walk, database)
    return database


def _kind(error: Exception) -> FaultKind:
    if isinstance(error, UnsupportedFormatError):
        return FaultKind.UNREAD
    return FaultKind.CRC if isinstance(error, BlockCrcError) else FaultKind.MALFORMED


def _root(columns: Columns) -> _Walk | None:
    """Read a manifest's body: configuration, files, versions; return the newest version's root.

    Raises:
        FormatError: It is none.
        UnsupportedFormatError: Versions stand in manifests of their own.
    """
    columns.take(_UUID_BYTES)
    kind = columns.take(1)[0]
    columns.varints(2)  # longest inline value, largest node
    columns.take(1)  # arity of the version tree
    if columns.varint() == _ZSTD:
        columns.take(_ZSTD_LEVEL_BYTES)
    if kind != _SINGLE:
        msg = f"manifest kind {kind}: versions in numbered manifests"
        raise UnsupportedFormatError(msg)
    files = read_file_table(columns, base="")
    count = columns.varint()
    if not 0 < count <= _MAX_VERSIONS:
        msg = f"{count} versions"
        raise FormatError(msg)
    columns.varints(count)  # generation numbers, rising
    heights = columns.take(count)
    refs = _root_refs(columns, files, count)
    if refs[-1] is None:
        return None
    return _Walk(refs[-1], b"", heights[-1])


def _root_refs(columns: Columns, files: list[DataFile], count: int) -> list[NodeRef | None]:
    ids, offsets, lengths = columns.varints(count), columns.varints(count), columns.varints(count)
    return [
        None if (offset, length) == (MISSING, MISSING) else NodeRef(file_of(files, index), offset, length)
        for index, offset, length in zip(ids, offsets, lengths, strict=True)
    ]


def _node(store: Store, listing: Listing, walk: _Walk, database: Database) -> list[_Walk]:
    """Read one node into the database; return its children."""
    ref = walk.ref
    try:
        columns = open_block(_block(store, listing, ref), magic=NODE_MAGIC)
        children = _read_node(columns, walk, database.values)
    except (FormatError, UnsupportedFormatError) as error:
        fault = NodeFault(ref.file.path, ref.offset, ref.length_bytes, str(error), _kind(error))
        database.faults.append(fault)
        return []
    database.nodes.append(ref)
    return children


def _block(store: Store, listing: Listing, ref: NodeRef) -> bytes:
    path = contained(ref.file.path)
    stat = listing.files.get(path) if path is not None else None
    if path is None or stat is None:
        msg = "is not there"
        raise FormatError(msg)
    if ref.offset + ref.length_bytes > stat.length_bytes or ref.length_bytes > MAX_BODY_BYTES:
        msg = f"ends at byte {ref.offset + ref.length_bytes} of {stat.length_bytes}"
        raise FormatError(msg)
    buffer = bytearray(ref.length_bytes)
    with store.open(listing.in_store(path)) as reader:
        got = reader.readinto(memoryview(buffer), ref.offset)
    return bytes(buffer[:got])


def _read_node(columns: Columns, walk: _Walk, values: dict[str, Value]) -> list[_Walk]:
    height = columns.take(1)[0]
    if height != walk.height or height > _MAX_HEIGHT:
        msg = f"a node of height {height} where one of {walk.height} is expected"
        raise FormatError(msg)
    files = read_file_table(columns, base=walk.ref.file.base)
    count = columns.varint()
    if not 0 < count <= _MAX_ARITY:
        msg = f"a node of {count} entries"
        raise FormatError(msg)
    prefixes, suffixes = [0, *columns.varints(count - 1)], columns.varints(count)
    if height == 0:
        values.update(_leaf(columns, files, walk.prefix, (prefixes, suffixes)))
        return []
    commons = columns.varints(count)
    keys = _keys(columns, prefixes, suffixes)
    refs = read_refs(columns, files, count)
    columns.varints(3 * count)  # statistics
    columns.end()
    return [
        _Walk(ref, walk.prefix + key[:common], height - 1)
        for ref, key, common in zip(refs, keys, commons, strict=True)
    ]


def _keys(columns: Columns, prefixes: list[int], suffixes: list[int]) -> list[bytes]:
    keys = read_texts(columns, prefixes, suffixes)
    if not are_sorted(keys):
        msg = "keys out of order"
        raise FormatError(msg)
    return keys


def _leaf(
    columns: Columns, files: list[DataFile], prefix: bytes, lengths_of_keys: tuple[list[int], list[int]]
) -> Mapping[str, Value]:
    keys = _keys(columns, *lengths_of_keys)
    lengths, kinds = columns.varints(len(keys)), columns.varints(len(keys))
    if any(kind > 1 for kind in kinds):
        msg = "a value of a kind that is not known"
        raise FormatError(msg)
    indirect = sum(kinds)
    ids, offsets = columns.varints(indirect), columns.varints(indirect)
    places: Iterator[tuple[int, int]] = iter(zip(ids, offsets, strict=True))
    found: dict[str, Value] = {}
    for key, length, kind in zip(keys, lengths, kinds, strict=True):
        if kind:
            index, offset = next(places)
            value = Value(file_of(files, index).path, offset, length)
        else:
            value = Value("", 0, length, columns.take(length))
        found[(prefix + key).decode(errors="backslashreplace")] = value
    columns.end()
    return found

"""TensorStore's OCDBT: envelopes, columns and file tables of its manifest and B-tree nodes.

Every encoded block is magic, length, version, compression, body, and a CRC-32C of all of it.
Bodies are columns of varints, so that a block is read column by column.

Source: tensorstore/kvstore/ocdbt/index.rst and format/{codec_util,data_file_id_codec,
config_codec,version_tree_codec}, version 0.1.86.
"""

import io
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Final, NamedTuple, cast

from ckptguard.errors import FormatError, LimitExceededError, UnsupportedFormatError
from ckptguard.formats.crc32c import crc32c

MANIFEST_MAGIC: Final = 0x0CDB3A2A
NODE_MAGIC: Final = 0x0CDB20DE
MISSING: Final = (1 << 64) - 1
"""Offset and length of what is not there: the root of an empty tree."""

MAX_BODY_BYTES: Final = 64 << 20
"""Of one block; TensorStore cuts nodes at 8 MB."""
_MAX_FILES: Final = 1 << 20
_MAX_VARINT_BYTES: Final = 10
_HEADER_BYTES: Final = 12
_CRC_BYTES: Final = 4
_MIN_BYTES: Final = _HEADER_BYTES + 2 + _CRC_BYTES
_ZSTD: Final = 1


class BlockCrcError(FormatError):
    """A block's bytes are not those of its CRC-32C."""

    code = "block_crc_mismatch"


class DataFile(NamedTuple):
    """A file that holds nodes or values.

    Args:
        base: Folder for what a node in this file refers to; empty, or ends with "/".
        path: The file, relative to the database.
    """

    base: str
    path: str


class NodeRef(NamedTuple):
    """Where an encoded node lies."""

    file: DataFile
    offset: int
    length_bytes: int


@dataclass(slots=True)
class Columns:
    """A body that is read forward."""

    data: bytes
    position: int = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes.

        Raises:
            FormatError: There are not as many.
        """
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            msg = f"ends at byte {len(self.data)}, before its last field"
            raise FormatError(msg)
        return self.data[start : self.position]

    def varint(self) -> int:
        """Return the next unsigned number of at most 64 bits.

        Raises:
            FormatError: There is none.
        """
        value = 0
        for count in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
                if value > MISSING:
                    break
                return value
        msg = f"no number at byte {self.position}"
        raise FormatError(msg)

    def varints(self, count: int) -> list[int]:
        """Return a column.

        Raises:
            FormatError: It is not there.
        """
        if count > len(self.data) - self.position:  # each takes a byte at least
            msg = f"a column of {count} numbers in {len(self.data) - self.position} bytes"
            raise FormatError(msg)
        return [self.varint() for _ in range(count)]

    def end(self) -> None:
        """Hold that all was read.

        Raises:
            FormatError: Bytes are left.
        """
        if self.position != len(self.data):
            msg = f"{len(self.data) - self.position} bytes after its last field"
            raise FormatError(msg)


def open_block(block: bytes, *, magic: int) -> Columns:
    """Check a block's envelope and return its body.

    Raises:
        FormatError: Magic, length or CRC-32C are wrong, or the body does not decode.
        UnsupportedFormatError: A newer version, or zstd without its decoder.
        LimitExceededError: The body is larger than `MAX_BODY_BYTES`.
    """
    if len(block) < _MIN_BYTES or int.from_bytes(block[:4], "big") != magic:
        msg = f"does not begin with 0x{magic:08x}: {block[:4].hex() or 'nothing'}"
        raise FormatError(msg)
    length = int.from_bytes(block[4:_HEADER_BYTES], "little")
    if length != len(block):
        msg = f"states a length of {length} bytes and has {len(block)}"
        raise FormatError(msg)
    if len(block) > MAX_BODY_BYTES:
        msg = f"a block of {len(block)} bytes, limit {MAX_BODY_BYTES}"
        raise LimitExceededError(msg)
    stored = int.from_bytes(block[-_CRC_BYTES:], "little")
    computed = crc32c(memoryview(block)[:-_CRC_BYTES])
    if stored != computed:
        msg = f"CRC-32C is {computed:08x}, {stored:08x} is stored"
        raise BlockCrcError(msg)
    head = Columns(block[:-_CRC_BYTES], _HEADER_BYTES)
    version, compression = head.varint(), head.varint()
    if version != 0:
        msg = f"version {version} of its format"
        raise UnsupportedFormatError(msg)
    return Columns(_decoded(head.data[head.position :], compression))


def _decoded(body: bytes, compression: int) -> bytes:
    if compression == 0:
        return body
    if compression != _ZSTD:
        msg = f"compression {compression}"
        raise UnsupportedFormatError(msg)
    try:
        import zstandard  # noqa: PLC0415 - optional dependency
    except ImportError as error:
        msg = "zstandard is not installed (pip install 'ckptguard[zstd]')"
        raise UnsupportedFormatError(msg) from error
    try:
        with zstandard.ZstdDecompressor().stream_reader(cast("IO[bytes]", io.BytesIO(body))) as stream:
            data = stream.read(MAX_BODY_BYTES + 1)
    except zstandard.ZstdError as error:
        msg = f"does not decode: {error}"
        raise FormatError(msg) from error
    if len(data) > MAX_BODY_BYTES:
        msg = f"a block of more than {MAX_BODY_BYTES} bytes"
        raise LimitExceededError(msg)
    return bytes(data)


def read_file_table(columns: Columns, *, base: str) -> list[DataFile]:
    """Read the table of data files at the start of a body.

    Args:
        columns: The body.
        base: Folder that the paths count from.

    Raises:
        FormatError: It is none.
    """
    count = columns.varint()
    if count > _MAX_FILES:
        msg = f"a table of {count} files"
        raise FormatError(msg)
    prefixes = [0, *columns.varints(max(count - 1, 0))]
    suffixes, bases = columns.varints(count), columns.varints(count)
    paths = read_texts(columns, prefixes[:count], suffixes)
    files = []
    for path, length in zip(paths, bases, strict=True):
        if length > len(path):
            msg = "a base path longer than its path"
            raise FormatError(msg)
        try:
            files.append(DataFile(base + path[:length].decode(), base + path.decode()))
        except UnicodeDecodeError as error:
            msg = "a path that is not UTF-8"
            raise FormatError(msg) from error
    return files


def read_texts(columns: Columns, prefixes: list[int], suffixes: list[int]) -> list[bytes]:
    """Read texts of which each begins like the one before it.

    Args:
        columns: The body, at the first suffix.
        prefixes: Bytes that each shares with its predecessor.
        suffixes: Bytes of its own.

    Raises:
        FormatError: They are none.
        LimitExceededError: Together longer than `MAX_BODY_BYTES`.
    """
    texts: list[bytes] = []
    last, total = b"", 0
    for prefix, suffix in zip(prefixes, suffixes, strict=True):
        if prefix > len(last):
            msg = "a text that begins like a longer one than the one before it"
            raise FormatError(msg)
        last = last[:prefix] + columns.take(suffix)
        total += len(last)
        if total > MAX_BODY_BYTES:
            msg = f"names of more than {MAX_BODY_BYTES} bytes in one block"
            raise LimitExceededError(msg)
        texts.append(last)
    return texts


def read_refs(columns: Columns, files: list[DataFile], count: int) -> list[NodeRef]:
    """Read where `count` nodes lie: columns of files, offsets and lengths.

    Raises:
        FormatError: One is in no file of the table.
    """
    ids, offsets, lengths = columns.varints(count), columns.varints(count), columns.varints(count)
    return [
        NodeRef(file_of(files, index), offset, length)
        for index, offset, length in zip(ids, offsets, lengths, strict=True)
    ]


def file_of(files: list[DataFile], index: int) -> DataFile:
    """Return a file of the table.

    Raises:
        FormatError: It has no such file.
    """
    if index >= len(files):
        msg = f"file {index} of a table of {len(files)}"
        raise FormatError(msg)
    return files[index]


def are_sorted(keys: list[bytes]) -> bool:
    """Say whether keys rise strictly, as in every node."""
    return all(one < other for one, other in pairwise(keys))

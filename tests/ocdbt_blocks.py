"""OCDBT blocks, encoded by hand: manifests, nodes, and nodes whose body need not be one."""

from itertools import pairwise

import zstandard

from ckptguard.formats.crc32c import crc32c
from ckptguard.formats.ocdbt_codec import MANIFEST_MAGIC, NODE_MAGIC

MISSING = (1 << 64) - 1


def varint(*values: int) -> bytes:
    out = bytearray()
    for number in values:
        value = number
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def block(magic: int, body: bytes, *, version: int = 0, compression: int = 0) -> bytes:
    stored = zstandard.ZstdCompressor().compress(body) if compression == 1 else body
    rest = varint(version, compression) + stored
    head = magic.to_bytes(4, "big") + (len(rest) + 16).to_bytes(8, "little")
    return head + rest + crc32c(head + rest).to_bytes(4, "little")


def table(*files: tuple[str, str]) -> bytes:
    """Encode (base, rest of the path) pairs, without shared beginnings."""
    paths = [(base + rest).encode() for base, rest in files]
    bases = [len(base) for base, _ in files]
    zeros = [0] * max(len(files) - 1, 0)
    return varint(len(files), *zeros, *map(len, paths), *bases) + b"".join(paths)


def manifest(files: bytes, *, offset: int, length: int, height: int = 0, kind: int = 0) -> bytes:
    config = bytes(16) + bytes([kind]) + varint(100, 8 << 20) + b"\x04" + varint(1) + bytes(4)
    version = varint(1, 1) + bytes([height]) + varint(0, offset, length, 1, 1, 1) + bytes(8) + varint(0)
    return block(MANIFEST_MAGIC, config + files + version, compression=1)


def leaf(files: bytes, entries: dict[bytes, bytes | tuple[int, int, int]]) -> bytes:
    """Encode a leaf: key to inline value, or to (file, offset, length)."""
    keys = list(entries)
    shared = [len(common(one, other)) for one, other in pairwise(keys)]
    suffixes = [keys[0], *(key[count:] for key, count in zip(keys[1:], shared, strict=True))]
    kinds = [int(isinstance(value, tuple)) for value in entries.values()]
    lengths = [value[2] if isinstance(value, tuple) else len(value) for value in entries.values()]
    places = [value for value in entries.values() if isinstance(value, tuple)]
    return block(
        NODE_MAGIC,
        b"\0"
        + files
        + varint(len(keys), *shared, *map(len, suffixes))
        + b"".join(suffixes)
        + varint(*lengths, *kinds, *(place[0] for place in places), *(place[1] for place in places))
        + b"".join(value for value in entries.values() if isinstance(value, bytes)),
        compression=1,
    )


def interior(files: bytes, children: list[tuple[bytes, int, int, int, int]], *, height: int = 1) -> bytes:
    """Encode an interior node of (key, common prefix, file, offset, length)."""
    columns = list(zip(*children, strict=True))
    keys = list(columns[0])
    zeros = [0] * (len(keys) - 1)
    statistics = [1] * (3 * len(keys))
    return block(
        NODE_MAGIC,
        bytes([height])
        + files
        + varint(len(keys), *zeros, *map(len, keys), *columns[1])
        + b"".join(keys)
        + varint(*columns[2], *columns[3], *columns[4], *statistics),
    )


def common(one: bytes, other: bytes) -> bytes:
    count = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    return one[: min(len(one), len(other)) if count is None else count]

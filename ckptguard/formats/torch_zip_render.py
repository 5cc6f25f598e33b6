"""Every structural byte of a torch.save zip, as a pure function of a few facts.

This is the law that items are held against: what `PyTorchStreamWriter` would have
written around the same records. Nothing here reads an item.

Source: pytorch caffe2/serialize/inline_container.cc (padding, record order,
serialization id) and third_party/miniz-3.0.2/miniz.c (`mz_zip_writer_add_mem_ex_v2`,
`mz_zip_writer_finalize_archive`), which torch builds with MINIZ_NO_TIME.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

LOCAL_MAGIC: Final = b"PK\x03\x04"
CENTRAL_MAGIC: Final = b"PK\x01\x02"
DESCRIPTOR_MAGIC: Final = b"PK\x07\x08"
DEFAULT_ALIGNMENT: Final = 64
SERIALIZATION_ID: Final = b".data/serialization_id"

LOCAL_FIXED_BYTES: Final = 30
CENTRAL_FIXED_BYTES: Final = 46
CENTRAL_CRC_OFFSET: Final = 16
HASH_DIGITS: Final = 20

_CACHED_HEADERS: Final = 512
_UINT16_MAX: Final = 0xFFFF
_UINT32_MAX: Final = 0xFFFFFFFF
_UINT64_MASK: Final = (1 << 64) - 1
_UTF8_NAME: Final = 0x0800
_HAS_DESCRIPTOR: Final = 0x0008
_PADDING_FIELD_BYTES: Final = 4
_ZIP64_FIELD: Final = 1
_MADE_BY: Final = 0x031E
_NEEDED_FOR_ZIP64: Final = 45

# magic, version needed, flags, method, time, date, crc, compressed, size, name, extra
_LOCAL: Final = Struct("<4sHHHHHIIIHH")
_FIELD: Final = Struct("<HH")
_DESCRIPTOR: Final = Struct("<4sIII")
_DESCRIPTOR64: Final = Struct("<4sIQQ")
# magic, made by, needed, flags, method, time, date, crc, compressed, size,
# name, extra, comment, disk, internal attributes, external attributes, offset
_CENTRAL: Final = Struct("<4sHHHHHHIIIHHHHHII")
# magic, size of the rest, made by, needed, disk, disk of directory, entries here, entries, length, offset
_END64: Final = Struct("<4sQHHIIQQQQ")
_LOCATOR: Final = Struct("<4sIQI")
# magic, disk, disk of directory, entries here, entries, length, offset, comment
_END: Final = Struct("<4sHHHHIIH")


class Record(NamedTuple):
    """What determines the bytes around one record.

    Args:
        name: Within the archive, e.g. `data/0`.
        offset: Of its local header, from the item's first byte.
        length_bytes: Of its content.
        crc: CRC-32 as the writer stores it: 0 where it was told not to compute any.
        lead: First 8 bytes of the content (see `fingerprint`).
    """

    name: bytes
    offset: int
    length_bytes: int
    crc: int
    lead: bytes = b""


class Segment(NamedTuple):
    """Rendered bytes and where they belong.

    Args:
        record: Name of the record concerned; None for the end records.
        part: What a person calls these bytes.
        offset: From the item's first byte.
        rendered: The bytes.
    """

    record: bytes | None
    part: str
    offset: int
    rendered: bytes


@lru_cache(maxsize=_CACHED_HEADERS)
def render_local_header(
    full_name: bytes, *, offset: int, length_bytes: int, payload_offset: int
) -> bytes | None:
    """Render a local header up to the payload.

    Sizes and CRC stay 0: they follow the payload in the descriptor. The `FB` extra
    field is padding, so that the payload is aligned.

    Args:
        full_name: With the archive's name.
        offset: Of this header in the item.
        length_bytes: Of the content; only 0, or 4 GiB and more, makes a difference.
        payload_offset: Where the content begins in the item.

    Returns:
        None if no padding leads to this payload offset.
    """
    zip64 = _zip64_field(offset=offset, length_bytes=length_bytes, compressed_bytes=0)
    unpadded = LOCAL_FIXED_BYTES + len(full_name) + len(zip64) + _PADDING_FIELD_BYTES
    padding = payload_offset - offset - unpadded
    extra = len(zip64) + _PADDING_FIELD_BYTES + padding
    if padding < 0 or extra > _UINT16_MAX:
        return None
    fixed = _LOCAL.pack(
        LOCAL_MAGIC, 0, _flags(length_bytes), 0, 0, 0, 0, 0, 0, len(full_name), extra
    )  # fmt: skip
    return b"".join((fixed, full_name, zip64, b"FB", padding.to_bytes(2, "little"), b"Z" * padding))


def align_payload(full_name: bytes, *, offset: int, length_bytes: int, alignment: int) -> int:
    """Return where the writer puts the payload of a record whose header begins at `offset`.

    Source: `detail::getOffset` in inline_container.cc.
    """
    zip64 = _zip64_field(offset=offset, length_bytes=length_bytes, compressed_bytes=0)
    unpadded = offset + LOCAL_FIXED_BYTES + len(full_name) + len(zip64) + _PADDING_FIELD_BYTES
    return -(-unpadded // alignment) * alignment


def render_descriptor(*, offset: int, length_bytes: int, crc: int) -> bytes:
    """Render what follows a payload; nothing follows an empty one.

    The 64-bit form is for records of 4 GiB and for those that begin beyond 4 GiB.
    """
    if not length_bytes:
        return b""
    form = _DESCRIPTOR64 if _is_zip64(offset, length_bytes) else _DESCRIPTOR
    return form.pack(DESCRIPTOR_MAGIC, crc, length_bytes, length_bytes)


def render_directory(archive: bytes, records: Sequence[Record], *, offset: int) -> list[Segment]:
    """Render everything after the last record: central directory and the three end records.

    Args:
        archive: Name of the archive, with its `/`.
        records: In the order written.
        offset: Of the central directory in the item.
    """
    segments, at = [], offset
    for record in records:
        entry = _render_central_entry(archive, record.name, record.offset, record.length_bytes, record.crc)
        segments.append(Segment(record.name, "central directory entry", at, entry))
        at += len(entry)
    length, count = at - offset, len(records)
    end64 = _END64.pack(
        b"PK\x06\x06", _END64.size - 12, _MADE_BY, _NEEDED_FOR_ZIP64, 0, 0, count, count, length, offset
    )  # fmt: skip
    locator = _LOCATOR.pack(b"PK\x06\x07", 0, at, 1)
    end = _END.pack(
        b"PK\x05\x06", 0, 0, _clamp16(count), _clamp16(count), _clamp32(length), _clamp32(offset), 0
    )  # fmt: skip
    for part, rendered in (
        ("zip64 end record", end64),
        ("zip64 end locator", locator),
        ("end of central directory", end),
    ):
        segments.append(Segment(None, part, at, rendered))
        at += len(rendered)
    return segments


def fingerprint(records: Iterable[Record], seed: int = 0) -> int:
    """Combine the CRCs of records as the second half of the serialization id does.

    The writer takes every write that begins with a descriptor's magic for a
    descriptor, so content that happens to begin with that magic counts as one too.
    Empty records have no descriptor and do not count.

    Source: `ostream_write_func` in inline_container.cc, `hash_combine` in c10/util/hash.h
    """
    combined = seed
    for record in records:
        if record.lead[:4] == DESCRIPTOR_MAGIC and len(record.lead) == len(DESCRIPTOR_MAGIC) + 4:
            combined = combine_hash(combined, int.from_bytes(record.lead[4:], "little"))
        if record.length_bytes:
            combined = combine_hash(combined, record.crc)
    return combined


def combine_hash(seed: int, value: int) -> int:
    """Return c10's `hash_combine` of two 64-bit numbers."""
    return (seed ^ (value + 0x9E3779B9 + (seed << 6) + (seed >> 2))) & _UINT64_MASK


@lru_cache(maxsize=_CACHED_HEADERS)
def _render_central_entry(
    archive: bytes, short_name: bytes, offset: int, length_bytes: int, crc: int
) -> bytes:
    zip64 = _zip64_field(offset=offset, length_bytes=length_bytes, compressed_bytes=length_bytes)
    length, name = _clamp32(length_bytes), archive + short_name
    fixed = _CENTRAL.pack(
        CENTRAL_MAGIC, 0, 0, _flags(length_bytes), 0, 0, 0, crc, length, length,
        len(name), len(zip64), 0, 0, 0, 0, _clamp32(offset),
    )  # fmt: skip
    return fixed + name + zip64


def _zip64_field(*, offset: int, length_bytes: int, compressed_bytes: int) -> bytes:
    # miniz writes only the numbers that do not fit, the offset even in local headers.
    if offset < _UINT32_MAX and length_bytes < _UINT32_MAX:
        return b""
    numbers = []
    if length_bytes >= _UINT32_MAX:
        numbers += [length_bytes, compressed_bytes]
    if offset >= _UINT32_MAX:
        numbers.append(offset)
    content = b"".join(number.to_bytes(8, "little") for number in numbers)
    return _FIELD.pack(_ZIP64_FIELD, len(content)) + content


def _is_zip64(offset: int, length_bytes: int) -> bool:
    return offset >= _UINT32_MAX or length_bytes >= _UINT32_MAX


def _flags(length_bytes: int) -> int:
    return _UTF8_NAME | _HAS_DESCRIPTOR if length_bytes else _UTF8_NAME


def _clamp16(number: int) -> int:
    return min(number, _UINT16_MAX)


def _clamp32(number: int) -> int:
    return min(number, _UINT32_MAX)

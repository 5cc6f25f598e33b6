"""The rendering, held against bytes that torch wrote and against facts that are too big to write."""

import io
import struct

import pytest
import torch

from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.formats.torch_zip_names import hash_names
from ckptguard.formats.torch_zip_render import (
    Record,
    align_payload,
    fingerprint,
    render_descriptor,
    render_directory,
    render_local_header,
)

GIB = 1 << 30
FOUR_GIB = 4 * GIB


def written(num_storages: int) -> tuple[bytes, list[Record], list[int], bytes]:
    buffer = io.BytesIO()
    torch.save([torch.full((3,), float(number)) for number in range(num_storages)], buffer)
    content = buffer.getvalue()
    verifier = ZipVerifier(len(content))
    for _ in verifier.feed(memoryview(content)):
        pass
    extents = verifier.finish().extents
    records = [Record(extent.name, extent.offset, extent.length_bytes, extent.crc) for extent in extents]
    last = extents[-1]
    serialization_id = content[last.payload_offset : last.payload_offset + last.length_bytes]
    return content, records, [extent.payload_offset for extent in extents], serialization_id


@pytest.mark.torch
def test_structure_renders_to_what_torch_wrote() -> None:
    content, records, payload_offsets, _ = written(3)
    rendered = bytearray()
    for record, payload_offset in zip(records, payload_offsets, strict=True):
        header = render_local_header(
            b"archive/" + record.name,
            offset=len(rendered),
            length_bytes=record.length_bytes,
            payload_offset=payload_offset,
        )
        assert header is not None
        rendered += header
        rendered += content[payload_offset : payload_offset + record.length_bytes]
        rendered += render_descriptor(offset=record.offset, length_bytes=record.length_bytes, crc=record.crc)
    for segment in render_directory(b"archive/", records, offset=len(rendered)):
        assert segment.offset == len(rendered)
        rendered += segment.rendered
    assert bytes(rendered) == content


@pytest.mark.torch
@pytest.mark.parametrize("num_storages", [0, 1, 8, 9, 24, 25, 54, 55, 253, 600])
def test_the_serialization_id_is_rebuilt_whole(num_storages: int) -> None:
    _, records, _, serialization_id = written(num_storages)
    names_hash = hash_names([record.name for record in records[:-1]])
    assert names_hash is not None
    assert serialization_id == b"%020d%020d" % (names_hash, fingerprint(records[:-1]))


def test_a_record_of_4_gib_carries_64_bit_lengths() -> None:
    length = FOUR_GIB + 300 * (1 << 20)
    header = render_local_header(b"archive/data/0", offset=598, length_bytes=length, payload_offset=704)
    assert header is not None
    assert struct.unpack_from("<H", header, 4) == (0,), "miniz leaves the version needed at 0"
    extra = header[30 + len(b"archive/data/0") :]
    # Local header: real length, compressed length still 0 (spikes: extra id 1, us, cs = 0).
    assert extra[:20] == struct.pack("<HHQQ", 1, 16, length, 0)
    assert extra[20:22] == b"FB"
    assert len(header) == 704 - 598
    descriptor = render_descriptor(offset=598, length_bytes=length, crc=7)
    assert descriptor == struct.pack("<4sIQQ", b"PK\x07\x08", 7, length, length)


def test_a_small_record_beyond_4_gib_carries_its_offset_and_a_long_descriptor() -> None:
    offset = FOUR_GIB + 1000
    header = render_local_header(
        b"archive/version",
        offset=offset,
        length_bytes=2,
        payload_offset=align_payload(b"archive/version", offset=offset, length_bytes=2, alignment=64),
    )
    assert header is not None
    assert header[45:57] == struct.pack("<HHQ", 1, 8, offset)
    assert len(render_descriptor(offset=offset, length_bytes=2, crc=1)) == 24


def test_the_directory_of_a_large_item_names_what_does_not_fit() -> None:
    length, offset = FOUR_GIB + 5, FOUR_GIB + 2000
    records = [Record(b"data/0", 598, length, 7), Record(b"version", offset, 2, 1)]
    big, small, end64, locator, end = render_directory(b"archive/", records, offset=offset + 200)
    assert struct.unpack_from("<II", big.rendered, 20) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert big.rendered[60:] == struct.pack("<HHQQ", 1, 16, length, length)
    assert struct.unpack_from("<I", small.rendered, 42) == (0xFFFFFFFF,)
    assert small.rendered[61:] == struct.pack("<HHQ", 1, 8, offset)
    assert struct.unpack_from("<QQ", end64.rendered, 40) == (len(big.rendered + small.rendered), offset + 200)
    assert struct.unpack_from("<Q", locator.rendered, 8) == (end64.offset,)
    assert struct.unpack_from("<I", end.rendered, 16) == (0xFFFFFFFF,)


@pytest.mark.parametrize("length_bytes", [0xFFFFFFFE, 0xFFFFFFFF])
def test_the_border_is_the_largest_32_bit_number(length_bytes: int) -> None:
    is_long = length_bytes == 0xFFFFFFFF
    assert len(render_descriptor(offset=0, length_bytes=length_bytes, crc=0)) == (24 if is_long else 16)


def test_an_empty_record_has_no_descriptor_and_says_so() -> None:
    assert render_descriptor(offset=0, length_bytes=0, crc=0) == b""
    header = render_local_header(b"archive/data/0", offset=0, length_bytes=0, payload_offset=64)
    assert header is not None
    assert struct.unpack_from("<H", header, 6) == (0x0800,)


def test_a_padding_that_no_zip_can_hold_is_none() -> None:
    assert render_local_header(b"a/b", offset=0, length_bytes=1, payload_offset=10) is None
    assert render_local_header(b"a/b", offset=0, length_bytes=1, payload_offset=1 << 17) is None


def test_content_that_begins_like_a_descriptor_counts_in_the_fingerprint() -> None:
    plain = Record(b"data/0", 0, 32, 5, lead=bytes(8))
    alike = plain._replace(lead=b"PK\x07\x08\x01\x02\x03\x04")
    assert fingerprint([plain]) != fingerprint([alike])
    assert fingerprint([plain._replace(length_bytes=0)]) == 0

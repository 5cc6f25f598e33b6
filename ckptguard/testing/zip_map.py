"""Where in a torch.save zip each byte belongs: the areas that damage can hit.

Independent of the product's own reader: Python's `zipfile` finds the records, and
what lies between them is named by its place.
Source: PyTorchStreamWriter, torch 2.13 caffe2/serialize/inline_container.cc.
"""

import io
import struct
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")


class Area(StrEnum):
    """What a byte of a torch.save zip is part of."""

    PAYLOAD = "payload"  # `data/N`: a tensor's own bytes
    PICKLE = "pickle"  # `data.pkl`
    SMALL_RECORD = "small_record"  # `version`, `byteorder`, `.data/serialization_id`, ...
    LOCAL_HEADER = "local_header"  # with the name
    PADDING = "padding"  # extra field that aligns the payload
    DESCRIPTOR = "descriptor"  # CRC and sizes after the payload
    CENTRAL_DIRECTORY = "central_directory"
    END_RECORDS = "end_records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Bytes `[start, end)` of a zip that belong to one area.

    Args:
        area: Which.
        record: Name of the record as torch says it (`data/0`); "" behind the records.
        start: First byte, from the zip's first byte.
        end: One past the last.
    """

    area: Area
    record: str
    start: int
    end: int


def map_zip(data: bytes) -> tuple[Region, ...]:
    """Return the regions of one torch.save zip, in order, without gap.

    Raises:
        zipfile.BadZipFile: This is no zip.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        directory = archive.start_dir
    ends = [member.header_offset for member in members[1:]] + [directory]
    regions = [
        region
        for member, end in zip(members, ends, strict=True)
        for region in _member_regions(data, member, end)
    ]
    directory_end = directory + _directory_length(data)
    regions.append(Region(area=Area.CENTRAL_DIRECTORY, record="", start=directory, end=directory_end))
    regions.append(Region(area=Area.END_RECORDS, record="", start=directory_end, end=len(data)))
    return tuple(region for region in regions if region.start < region.end)


def _member_regions(data: bytes, member: zipfile.ZipInfo, end: int) -> list[Region]:
    start = member.header_offset
    *_, name_length, extra_length = _LOCAL_HEADER.unpack_from(data, start)
    name_end = start + _LOCAL_HEADER.size + name_length
    payload = name_end + extra_length
    payload_end = payload + member.compress_size
    record = member.filename.partition("/")[2]
    places = (
        (Area.LOCAL_HEADER, start, name_end),
        (Area.PADDING, name_end, payload),
        (_record_area(record), payload, payload_end),
        (Area.DESCRIPTOR, payload_end, end),
    )
    return [Region(area=area, record=record, start=low, end=high) for area, low, high in places]


def _record_area(record: str) -> Area:
    if record == "data.pkl":
        return Area.PICKLE
    return Area.PAYLOAD if record.startswith("data/") else Area.SMALL_RECORD


def _directory_length(data: bytes) -> int:
    end_record = data.rindex(b"PK\x05\x06")
    length: int = struct.unpack_from("<I", data, end_record + 12)[0]
    return length

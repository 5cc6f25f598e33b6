"""Torch zips around any `data.pkl`, with right CRCs and every header as torch writes it."""

import zlib
from collections.abc import Mapping
from typing import Final

from ckptguard.formats.torch_zip_render import (
    DEFAULT_ALIGNMENT,
    SERIALIZATION_ID,
    Record,
    align_payload,
    fingerprint,
    render_descriptor,
    render_directory,
    render_local_header,
)

_ARCHIVE: Final = b"archive/"


def build_zip(pickle: bytes, storages: Mapping[str, bytes] | None = None) -> bytes:
    """Return the zip that `torch.save` would leave around this pickle.

    Args:
        pickle: Content of `data.pkl`; need not be one.
        storages: Content of `data/KEY`, by key.
    """
    contents = {
        b"data.pkl": pickle,
        b".format_version": b"1",
        b".storage_alignment": str(DEFAULT_ALIGNMENT).encode(),
        b"byteorder": b"little",
        **{f"data/{key}".encode(): data for key, data in (storages or {}).items()},
        b"version": b"3\n",
    }
    whole, records = bytearray(), list[Record]()
    for name, content in contents.items():
        _append(whole, records, name, content)
    _append(whole, records, SERIALIZATION_ID, b"0" * 20 + b"%020d" % fingerprint(records))
    directory = render_directory(_ARCHIVE, records, offset=len(whole))
    return bytes(whole) + b"".join(segment.rendered for segment in directory)


def _append(whole: bytearray, records: list[Record], name: bytes, content: bytes) -> None:
    offset, length = len(whole), len(content)
    payload_offset = align_payload(
        _ARCHIVE + name, offset=offset, length_bytes=length, alignment=DEFAULT_ALIGNMENT
    )
    header = render_local_header(
        _ARCHIVE + name, offset=offset, length_bytes=length, payload_offset=payload_offset
    )
    assert header is not None, name
    crc = zlib.crc32(content)
    whole += header + content + render_descriptor(offset=offset, length_bytes=length, crc=crc)
    records.append(Record(name, offset, length, crc))

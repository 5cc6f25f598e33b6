"""Where content of unknown length ends: at the descriptor that describes it."""

from re import compile as compile_pattern
from struct import Struct
from typing import Final

from zlib_ng.zlib_ng import crc32

from ckptguard.formats.torch_zip_render import DESCRIPTOR_MAGIC, render_descriptor

_FORMS: Final = {16: Struct("<4sIII"), 24: Struct("<4sIQQ")}
_DESCRIPTOR_OR_NEXT: Final = compile_pattern(rb"PK(?:\x07\x08|\x03\x04|\x01\x02)")
_ALL: Final = 3
_ENOUGH_WITH_CRC: Final = 2


def find_content_end(buffer: bytes, *, descriptor_length: int) -> int | None:
    """Find the end of content by its descriptor, or by the header that follows the descriptor.

    A descriptor has four fields to check: magic, CRC-32 and the length twice. Three of
    them are enough, so that an altered one does not hide the end; zips inside the
    content (objects that hold serialised tensors) agree in one or two at most.

    Args:
        buffer: The content, then what follows.
        descriptor_length: 16 or 24 bytes.

    Returns:
        Length of the content in bytes; None if its end is not in the buffer.
    """
    form = _FORMS[descriptor_length]
    for match in _DESCRIPTOR_OR_NEXT.finditer(buffer):
        is_descriptor = match.group() == DESCRIPTOR_MAGIC
        end = match.start() if is_descriptor else match.start() - descriptor_length
        if end <= 0 or end + descriptor_length > len(buffer):
            continue
        magic, crc, compressed, length = form.unpack_from(buffer, end)
        agreeing = (magic == DESCRIPTOR_MAGIC) + (compressed == end) + (length == end)
        if agreeing == _ALL or (agreeing == _ENOUGH_WITH_CRC and crc in (0, crc32(buffer[:end]))):
            return end
    return None


def find_slack(after: bytes, *, offset: int, length_bytes: int, itemsize: int) -> int:
    """Return how much longer than its whole elements a storage is, less than one element.

    The pickle counts whole elements, the record has every byte of the storage.

    Args:
        after: What follows the whole elements.
        offset: Of the record's local header.
        length_bytes: Of the whole elements.
        itemsize: Bytes per element.
    """
    for slack in range(itemsize):
        expected = render_descriptor(offset=offset, length_bytes=length_bytes + slack, crc=0)
        found = after[slack : slack + len(expected)]
        if found[:4] == expected[:4] and found[8:] == expected[8:]:
            return slack
    return 0

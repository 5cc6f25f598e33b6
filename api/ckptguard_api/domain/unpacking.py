"""What is stored compressed, read piece by piece: memory of a piece, whatever it unpacks to."""

from collections.abc import Iterator
from typing import Final

import zstandard

_READ_BYTES: Final = 1 << 17


def unpacked_pieces(body: bytes) -> Iterator[bytes]:
    """Yield what a zstd frame holds; no piece is empty."""
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        while piece := reader.read(_READ_BYTES):
            yield piece

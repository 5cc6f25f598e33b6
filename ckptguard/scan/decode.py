"""Stream transforms that DCP may have applied to an item (`transform_descriptors`)."""

import importlib.util
from collections.abc import Iterator
from typing import IO, Final

from ckptguard.errors import LimitExceededError, UnsupportedFormatError

DECODED_PIECE_BYTES: Final = 1 << 20
_ENCODED_PIECE_BYTES: Final = 128 << 10


class TransformMalformedError(Exception):
    """The transformed bytes do not decode; the argument says why."""


def missing_decoder(transforms: tuple[str, ...]) -> str | None:
    """Say why these transforms cannot be undone here; None if they can.

    Source: torch 2.13 distributed/checkpoint/_extension.py registers `stream.zstd`
    and the test extension `stream.rot13`; a descriptor may carry a version (`stream.zstd/1`).
    """
    for transform in transforms:
        if not _is_zstd(transform):
            return f"unknown transform {transform}"
        if importlib.util.find_spec("zstandard") is None:
            return "zstandard is not installed (pip install 'ckptguard[zstd]')"
    if len(transforms) > 1:
        return f"several transforms in a row: {', '.join(transforms)}"
    return None


def decode(source: IO[bytes], transforms: tuple[str, ...], *, max_bytes: int) -> Iterator[memoryview]:
    """Yield the decoded bytes of one item, in pieces that live until the next.

    Guarantees: memory is one piece, however far the input expands.

    Raises:
        UnsupportedFormatError: `missing_decoder` names a reason.
        LimitExceededError: More than `max_bytes` come out.
        TransformMalformedError: The input is damaged, cut off or has a tail.
    """
    reason = missing_decoder(transforms)
    if reason is not None:
        raise UnsupportedFormatError(reason)
    import zstandard  # noqa: PLC0415 - optional dependency

    piece = memoryview(bytearray(DECODED_PIECE_BYTES))
    total = 0
    stream = zstandard.ZstdDecompressor().stream_reader(source, read_size=_ENCODED_PIECE_BYTES)
    while True:
        try:
            count = stream.readinto(piece)
        except zstandard.ZstdError as error:
            raise TransformMalformedError(str(error)) from error
        if count == 0:
            break
        total += count
        if total > max_bytes:
            msg = f"decodes to more than {max_bytes} bytes"
            raise LimitExceededError(msg)
        yield piece[:count]
    if source.read(1):
        msg = "bytes follow the end of the compressed stream"
        raise TransformMalformedError(msg)


def _is_zstd(transform: str) -> bool:
    return transform.split("/", maxsplit=1)[0] == "stream.zstd"

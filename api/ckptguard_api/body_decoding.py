"""Bodies of requests: bounded before, while and after they are decoded."""

import re
import threading
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import zstandard

from ckptguard.errors import (
    InvalidRequestError,
    LimitExceededError,
    ManifestFormatError,
    TooLargeError,
    TooManyRequestsError,
)
from ckptguard.formats.strict_json import JsonLimits, parse_strict_json
from ckptguard.model.json_fields import MAX_PROBLEMS
from ckptguard.model.manifest_laws import escape_pointer

SMALL_BODY_BYTES: Final = 1 << 20
LARGE_BODY_BYTES: Final = 256 << 20
ENCODINGS: Final = ("identity", "gzip", "zstd")

_LARGE: Final = re.compile(r"/v1/(runs/[^/]+/checkpoints|leases/[^/]+/(files|verdict))")
_PIECE_BYTES: Final = 1 << 20
_MAX_WINDOW_BYTES: Final = 8 << 20  # zstd asks for it before the first byte comes out
# A zstd block of 4 bytes can stand for 128 KiB (RFC 8878, RLE_Block), and the decoder has no bound of its
# own on what one call returns: fed so many bytes it returns 8 MiB at most.
_ZSTD_STEP_BYTES: Final = 256
_BUDGET_BYTES: Final = 768 << 20
HEAVY_BYTES: Final = 1 << 20
"""Bodies longer than this are dealt with `HEAVY_AT_ONCE` at a time: what is parsed is many times the text."""
HEAVY_AT_ONCE: Final = 2
LARGE_JSON: Final = JsonLimits(max_bytes=LARGE_BODY_BYTES, max_depth=34, max_values=3_000_000)
"""Of registrations and lease writes: enough for 500,000 files, and at most 600 MiB once parsed (measured)."""
_JSON_LIMITS: Final = JsonLimits(max_bytes=SMALL_BODY_BYTES, max_depth=32, max_values=100_000)


class BodyBudget:
    """How many bytes of bodies one process holds at once; any thread."""

    def __init__(self, max_bytes: int = _BUDGET_BYTES) -> None:
        self._left = max_bytes
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Reserve bytes.

        Raises:
            TooManyRequestsError: Others hold them.
        """
        with self._lock:
            if count > self._left:
                msg = "too many large bodies at once; send it again later"
                raise TooManyRequestsError(msg)
            self._left -= count

    def give(self, count: int) -> None:
        """Let bytes go."""
        with self._lock:
            self._left += count


def is_large(path: str) -> bool:
    """Say whether a request to this path may have a large body, which its route parses itself."""
    return _LARGE.fullmatch(path) is not None


def limit_of(path: str) -> int:
    """Return how many bytes a body sent to this path may have, encoded and decoded."""
    return LARGE_BODY_BYTES if is_large(path) else SMALL_BODY_BYTES


def too_large(limit: int) -> TooLargeError:
    """Return the error for a body beyond its limit."""
    return TooLargeError(f"the body has more than {limit} bytes, decoded")


def decode_body(body: bytes, encoding: str, *, limit: int) -> bytes:
    """Undo a content encoding.

    Args:
        body: As sent.
        encoding: One of `ENCODINGS`.
        limit: Bytes that may come out; not one more is produced than a piece beyond.

    Raises:
        TooLargeError: More would come out.
        InvalidRequestError: It is broken, cut off, or something follows it.
    """
    if encoding == "identity":
        return body
    pieces, length = [], 0
    try:
        for piece in _gunzipped(body) if encoding == "gzip" else _unpacked_zstd(body):
            length += len(piece)
            if length > limit:
                raise too_large(limit)
            pieces.append(piece)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        msg = f"the body is not {encoding}: {error}"
        raise InvalidRequestError(msg) from error
    return b"".join(pieces)


def _gunzipped(body: bytes) -> Iterator[bytes]:
    rest = body
    while rest:  # a gzip file may have several members
        decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while rest and not decoder.eof:
            yield decoder.decompress(rest, _PIECE_BYTES)
            rest = decoder.unconsumed_tail
        if not decoder.eof:
            yield decoder.flush(_PIECE_BYTES)
        if not decoder.eof:
            msg = "it is cut off"
            raise EOFError(msg)
        rest = decoder.unused_data


def _unpacked_zstd(body: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    rest = body
    while rest:
        decoder, start = decompressor.decompressobj(), 0
        while start < len(rest) and not decoder.eof:
            yield decoder.decompress(rest[start : start + _ZSTD_STEP_BYTES])
            start += _ZSTD_STEP_BYTES
        if not decoder.eof:
            msg = "it is cut off"
            raise EOFError(msg)
        rest = decoder.unused_data + rest[start:]


def require_strict_json(body: bytes) -> None:
    """Refuse a small body that is not strict JSON.

    Raises:
        TooLargeError: Nested too deep, or too many values.
        InvalidRequestError: Not JSON; a key twice; a number or a text that cannot be kept as it is.
    """
    try:
        parsed = parse_strict_json(body, _JSON_LIMITS)
    except LimitExceededError as error:
        raise TooLargeError(str(error)) from error
    except ManifestFormatError as error:
        msg = "the body is not JSON"
        raise InvalidRequestError(msg, problems=error.problems) from error
    problems = (*parsed.problems, *islice(_text_faults(parsed.value, ""), MAX_PROBLEMS))
    if problems:
        msg = f"the body breaks {len(problems)} rule{'s' if len(problems) > 1 else ''} of strict JSON"
        raise InvalidRequestError(msg, problems=problems)


def parse_large_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a large body of a worker, as strictly as a small one.

    Args:
        body: Decoded.

    Raises:
        TooLargeError: Nested too deep, or too many values.
        InvalidRequestError: Not JSON; a key twice; a number that cannot be kept as it is.
    """
    try:
        parsed = parse_strict_json(body, LARGE_JSON)
    except LimitExceededError as error:
        raise TooLargeError(str(error)) from error
    except ManifestFormatError as error:
        msg = "the body is not JSON"
        raise InvalidRequestError(msg, problems=error.problems) from error
    if parsed.problems:
        msg = "the body breaks rules of strict JSON"
        raise InvalidRequestError(msg, problems=parsed.problems)
    return parsed.value


def is_storable(text: str) -> bool:
    """Say whether a text can be kept in both databases: no NUL, no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _text_faults(value: Any, at: str) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(value, str) and not is_storable(value):
        yield f"{at}: NUL or half of a surrogate pair in a text"
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _text_faults(element, f"{at}/{index}")
    elif isinstance(value, dict):
        for key, member in value.items():
            if not is_storable(key):
                yield f"{at}/{escape_pointer(key)}: NUL or half of a surrogate pair in a key"
            yield from _text_faults(member, f"{at}/{escape_pointer(key)}")

"""The files that a verdict binds to, read out of their compressed list one after the other."""

import json
from collections.abc import Iterator
from typing import Any, Final

import zstandard

from ckptguard.errors import LimitExceededError

MAX_ENTRY_CHARS: Final = 1 << 20
_READ_BYTES: Final = 1 << 16


def evidence_files(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list that `leasing.recording` packed.

    Cost: memory of one entry and a buffer, whatever the list unpacks to.

    Raises:
        LimitExceededError: An entry longer than `MAX_ENTRY_CHARS`.
    """
    decoder = json.JSONDecoder()
    buffer = ""
    for number, text in enumerate(_texts(body)):
        buffer += text.removeprefix("[") if number == 0 else text
        position = 0
        while (found := _next_entry(decoder, buffer, position)) is not None:
            entry, position = found
            yield entry
        buffer = buffer[position:]
        if len(buffer) > MAX_ENTRY_CHARS:
            msg = f"an entry of the evidence is longer than {MAX_ENTRY_CHARS} characters"
            raise LimitExceededError(msg)


def _texts(body: bytes) -> Iterator[str]:
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        while piece := reader.read(_READ_BYTES):
            yield piece.decode("ascii")  # json.dumps escapes the rest


def _next_entry(decoder: json.JSONDecoder, buffer: str, at: int) -> tuple[dict[str, Any], int] | None:
    start = at + 1 if buffer[at : at + 1] == "," else at
    if buffer[start : start + 1] != "{":
        return None
    try:
        return decoder.raw_decode(buffer, start)
    except json.JSONDecodeError:
        return None  # the rest is still to come

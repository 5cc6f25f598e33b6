"""The files that a verdict binds to, read out of their compressed list piece by piece."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from ckptguard.errors import LimitExceededError
from ckptguard_api.domain.unpacking import unpacked_pieces

MAX_ENTRY_CHARS: Final = 1 << 20

# Between two entries. It stands in no name: there a quotation mark comes after a backslash.
_BETWEEN: Final = b'},{"'


def evidence_files(body: bytes, *, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list that `leasing.recording` packed.

    Args:
        body: The list.
        start: How many to pass over.

    Cost: memory of one entry and a piece, whatever the list unpacks to; what is passed over is not parsed.

    Raises:
        LimitExceededError: An entry longer than `MAX_ENTRY_CHARS`.
    """
    passed = 0
    for batch in evidence_batches(body):
        count = entries_in(batch)
        if passed + count > start:
            yield from parsed_batch(batch)[max(0, start - passed) :]
        passed += count


def entries_at(body: bytes, places: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the entries at some places of a list, each with its place.

    Args:
        body: The list.
        places: From 0, ascending; those beyond the end are left out.

    Cost: as `evidence_files`; pieces without a place that is wanted are not parsed.
    """
    passed, wanted = 0, deque(places)
    for batch in evidence_batches(body):
        if not wanted:
            return
        end = passed + entries_in(batch)
        if wanted[0] < end:
            entries = parsed_batch(batch)
            while wanted and wanted[0] < end:
                place = wanted.popleft()
                yield place, entries[place - passed]
        passed = end


def evidence_batches(body: bytes) -> Iterator[bytes]:
    """Yield the list as JSON texts, each an array of some of its entries; none is empty.

    Raises:
        LimitExceededError: An entry longer than `MAX_ENTRY_CHARS`.
    """
    rest = b""
    for number, piece in enumerate(unpacked_pieces(body)):
        rest += piece.removeprefix(b"[") if number == 0 else piece
        cut = rest.rfind(_BETWEEN)
        if cut >= 0:
            yield b"[" + rest[: cut + 1] + b"]"
            rest = rest[cut + 2 :]
        if len(rest) > MAX_ENTRY_CHARS:
            msg = f"an entry of the evidence is longer than {MAX_ENTRY_CHARS} characters"
            raise LimitExceededError(msg)
    if rest.strip(b"]"):
        yield b"[" + rest


def entries_in(batch: bytes) -> int:
    """Count the entries of a batch without parsing it."""
    return batch.count(_BETWEEN) + 1


def parsed_batch(batch: bytes) -> list[dict[str, Any]]:
    """Return the entries of a batch."""
    entries: list[dict[str, Any]]
    try:
        entries = orjson.loads(batch)
    except orjson.JSONDecodeError:
        entries = json.loads(batch)  # a name with half of a surrogate pair
    return entries

"""The tensors that verdicts saw: packed to be kept, searched, and held against each other.

Nothing here unpacks a list as a whole: lines go by, and only those that are wanted are parsed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import zstandard

from ckptguard.model.tensor_list import TensorEntry, parse_line, split_lines, text_pieces
from ckptguard_api.domain.unpacking import unpacked_pieces

_LEVEL: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTensors:
    """A list as it is stored.

    Args:
        body: zstd of its lines.
        count: Entries.
    """

    body: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPage:
    """Some tensors of a list.

    Args:
        entries: In the list's order.
        next: Number of the first line that was not looked at; None: the list ended.
    """

    entries: tuple[TensorEntry, ...]
    next: int | None


def kept_tensors(packed: bytes) -> KeptTensors:
    """Return what is stored of a list that a report carried; `report_from_json` found it lawful."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    pieces, count = [], 0
    for piece in text_pieces(packed):
        pieces.append(compressor.compress(piece))
        count += piece.count(b"\n")
    return KeptTensors(body=b"".join([*pieces, compressor.flush()]), count=count)


def tensor_lines(body: bytes) -> Iterator[bytes]:
    """Yield the lines of a stored list.

    Cost: memory of a piece, whatever it unpacks to.
    """
    return split_lines(unpacked_pieces(body))


def find_tensors(body: bytes, *, fqn: str, start: int, limit: int) -> TensorPage:
    """Return the first tensors at or after a line whose name contains a text.

    Args:
        body: Of the list.
        fqn: Part of a name, as it is written; "": all.
        start: Line from 0.
        limit: Entries at most.

    Cost: time of all lines up to the last one returned; of those that cannot match, none is parsed.
    """
    needle = json.dumps(fqn)[1:-1].encode()
    found: list[TensorEntry] = []
    for number, line in enumerate(tensor_lines(body)):
        if number < start or needle not in line:
            continue
        entry = parse_line(line)
        if fqn not in entry.fqn:
            continue  # the text is in the name of a file
        if len(found) == limit:
            return TensorPage(entries=tuple(found), next=number)
        found.append(entry)
    return TensorPage(entries=tuple(found), next=None)

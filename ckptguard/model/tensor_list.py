"""The tensors of a checkpoint as a verdict keeps them: sorted, one line of JSON each, compressed.

Metadata of a checkpoint is hostile, and never leaves the child that parsed it; this list is what the
service may show of it. The largest models have hundreds of thousands of tensors: the list is read line by
line, and nothing but the lines that are wanted is ever parsed.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from ckptguard.model.report import TensorNumerics

MAX_TENSORS: Final = 250_000
MAX_LINE_BYTES: Final = 64 << 10
MAX_TEXT_BYTES: Final = 512 << 20
MAX_PACKED_BYTES: Final = 32 << 20
"""Of a list as it is sent: beyond any of these limits a list ends early, and says less than all."""
MAX_FILES_NAMED: Final = 8
"""Files named with a tensor; `num_files` counts them all."""
MAX_DIMENSIONS: Final = 64

_LEVEL: Final = 3
_PIECE_BYTES: Final = 1 << 16
_LAST_BYTES: Final = 1 << 20  # what a compressor may still hold
_TO_TEXT: Final = json.JSONEncoder(separators=(",", ":")).encode
_MEMBERS: Final = 9
_MEASURES: Final = 5
_MAX_INTEGER: Final = 2**63 - 1


class TensorEntry(NamedTuple):
    """One tensor; a million of them are made.

    Args:
        fqn: Name.
        part: Folder of its part in the checkpoint; "" where the save has one part.
        dtype: torch's name without prefix.
        shape: Whole shape, in elements.
        num_slices: Parts that the metadata lists of it.
        length_bytes: Stored bytes of all its items.
        num_files: Files that hold them.
        files: The first of these by path, at most `MAX_FILES_NAMED`.
        numerics: What was measured; None: nothing was.
    """

    fqn: str
    part: str
    dtype: str
    shape: tuple[int, ...]
    num_slices: int
    length_bytes: int
    num_files: int
    files: tuple[str, ...]
    numerics: TensorNumerics | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Where it stands in a list; two entries with one key differ in dtype or shape."""
        return self.fqn, self.part


def pack_tensors(entries: Iterable[TensorEntry]) -> bytes:
    """Return a list as reports carry it.

    Args:
        entries: In the order of their keys. What is beyond the limits, or is no tensor that could be (a
            hostile shape), is left out.

    Guarantees: `count_lawful` takes it, whatever the metadata says: no list costs its report the verdict.
    """
    compressor = zlib.compressobj(_LEVEL)
    packed = bytearray()
    count, text_bytes = 0, 0
    for entry in entries:
        line = to_line(entry) if _is_lawful(entry) else b""
        if not line or len(line) > MAX_LINE_BYTES:
            continue
        count, text_bytes = count + 1, text_bytes + len(line)
        if count > MAX_TENSORS or text_bytes > MAX_TEXT_BYTES or len(packed) > MAX_PACKED_BYTES - _LAST_BYTES:
            break
        packed += compressor.compress(line)
    return bytes(packed + compressor.flush()) if count else b""


def lines_of(packed: bytes) -> Iterator[bytes]:
    """Yield the lines of what `pack_tensors` made.

    Raises:
        ValueError: It is something else, or beyond the limits.
    """
    return split_lines(text_pieces(packed))


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a text that comes in pieces, without their ends.

    Raises:
        ValueError: A line is longer than `MAX_LINE_BYTES`, or the last one has no end.
    """
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > MAX_LINE_BYTES:
            msg = f"a line of more than {MAX_LINE_BYTES} bytes"
            raise ValueError(msg)
    if rest:
        msg = "the last line has no end"
        raise ValueError(msg)


def to_line(entry: TensorEntry) -> bytes:
    """Return an entry as one line of ASCII."""
    numerics = entry.numerics
    values = [
        *entry[: _MEMBERS - 1],
        None if numerics is None else [*map(_number_or_text, numerics[:2]), *numerics[2:]],
    ]
    return _TO_TEXT(values).encode() + b"\n"


def parse_line(line: bytes) -> TensorEntry:
    """Rebuild what `to_line` made.

    Raises:
        ValueError: It is something else.
    """
    try:
        values = json.loads(line)
    except RecursionError as error:
        msg = "nested too deep"
        raise ValueError(msg) from error
    if not isinstance(values, list) or len(values) != _MEMBERS:
        raise _no_entry()
    fqn, part, dtype, shape, num_slices, length_bytes, num_files, files, numerics = values
    if not isinstance(shape, list) or not isinstance(files, list):
        raise _no_entry()
    entry = TensorEntry(
        fqn,
        part,
        dtype,
        tuple(shape),
        num_slices,
        length_bytes,
        num_files,
        tuple(files),
        None if numerics is None else _numerics(numerics),
    )
    if not _is_lawful(entry):
        raise _no_entry()
    return entry


def count_lawful(packed: bytes) -> int:
    """Look at every line of a list, and return how many there are.

    Raises:
        ValueError: A line is no entry, stands out of order, or is one too many.
    """
    count, before = 0, ("", "")
    for line in lines_of(packed):
        key = parse_line(line).key
        count += 1
        if key < before or count > MAX_TENSORS:
            msg = f"entry {count} is out of order, or beyond {MAX_TENSORS}"
            raise ValueError(msg)
        before = key
    return count


def text_pieces(packed: bytes) -> Iterator[bytes]:
    """Yield the text of what `pack_tensors` made, in pieces.

    Raises:
        ValueError: It is something else, or beyond the limits.
    """
    if len(packed) > MAX_PACKED_BYTES:
        msg = f"more than {MAX_PACKED_BYTES} bytes"
        raise ValueError(msg)
    decoder, total, rest = zlib.decompressobj(), 0, packed
    while rest and not decoder.eof:
        try:
            piece = decoder.decompress(rest, _PIECE_BYTES)
        except zlib.error as error:
            msg = "not compressed as it should be"
            raise ValueError(msg) from error
        rest = decoder.unconsumed_tail
        total += len(piece)
        if total > MAX_TEXT_BYTES:
            msg = f"more than {MAX_TEXT_BYTES} bytes of text"
            raise ValueError(msg)
        yield piece
    if packed and (not decoder.eof or decoder.unused_data):
        msg = "cut off, or followed by something"
        raise ValueError(msg)


def _is_lawful(entry: TensorEntry) -> bool:
    texts = (entry.fqn, entry.part, entry.dtype, *entry.files)
    counts = (*entry.shape, entry.num_slices, entry.length_bytes, entry.num_files)
    return (
        len(entry.shape) <= MAX_DIMENSIONS
        and len(entry.files) <= MAX_FILES_NAMED
        and all(map(_is_count, counts))
        and all(isinstance(text, str) for text in texts)
    )


def _number_or_text(value: float) -> float | str:
    # JSON has no NaN and no infinity.
    return value if abs(value) < float("inf") else str(value)


def _numerics(values: Any) -> TensorNumerics:  # noqa: ANN401 - a JSON value
    if not isinstance(values, list) or len(values) != _MEASURES:
        raise _no_entry()
    minimum, maximum, *flags = values
    if not all(isinstance(flag, bool) for flag in flags):
        raise _no_entry()
    return TensorNumerics(_extreme(minimum), _extreme(maximum), *flags)


def _extreme(value: Any) -> float:  # noqa: ANN401 - a JSON value
    if value in ("nan", "inf", "-inf") or type(value) in (int, float):
        return float(value)
    raise _no_entry()


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_INTEGER


def _no_entry() -> ValueError:
    return ValueError("not an entry of a list of tensors")

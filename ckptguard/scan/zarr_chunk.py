"""A chunk of a Zarr array: does it decode to as many bytes as a chunk has?

Neither the chunk nor (as Orbax writes it) its compressed stream has a checksum. That a stream
decodes, ends where its bytes end, and gives exactly the elements of a chunk is all that can be held
against it; altered bytes may still pass.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import IO, cast

from ckptguard.errors import LimitExceededError
from ckptguard.formats.protocol import ItemReport, Problem
from ckptguard.formats.torch_dtypes import ITEMSIZES
from ckptguard.model.finding import FindingCode
from ckptguard.model.layout import Item
from ckptguard.scan.decode import TransformMalformedError, decode, missing_decoder
from ckptguard.scan.piece_source import PieceSource


def verify_chunk(item: Item, pieces: Iterable[memoryview]) -> ItemReport:
    """Verify one chunk; all pieces are taken, whatever is found.

    Args:
        item: `slice.sizes` is a whole chunk, also where its array ends inside of it.
        pieces: Its bytes; each piece lives until the next is asked for.

    Returns:
        A report without a problem, too, where the codec or the dtype is one that is not read here.
    """
    pieces = iter(pieces)
    expected = _chunk_bytes(item)
    observed = None if expected is None else _decoded_bytes(item, pieces, expected)
    for _ in pieces:
        pass
    if observed is None or observed == expected:
        return ItemReport()
    problem = Problem(
        FindingCode.TRANSFORM_MALFORMED,
        "the chunk does not decode to the bytes of its elements",
        offset=0,
        length_bytes=item.length_bytes,
        expected=f"{expected} bytes",
        observed=observed if isinstance(observed, str) else f"{observed} bytes",
    )
    return ItemReport(problems=(problem,))


def _chunk_bytes(item: Item) -> int | None:
    itemsize = ITEMSIZES.get(item.dtype or "")
    if itemsize is None or item.slice is None:
        return None
    return prod(item.slice.sizes) * itemsize


def _decoded_bytes(item: Item, pieces: Iterator[memoryview], expected: int) -> int | str | None:
    """Return how many bytes come out, or why none do; None where the decoder is not here."""
    if not item.transforms:
        return item.length_bytes
    if missing_decoder(item.transforms) is not None:
        return None
    decoded = decode(cast("IO[bytes]", PieceSource(pieces)), item.transforms, max_bytes=expected)
    try:
        return sum(map(len, decoded))
    except TransformMalformedError as error:
        return str(error)[:200]
    except LimitExceededError:
        return f"more than {expected} bytes"

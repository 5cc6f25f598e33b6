"""Chunks of Zarr arrays: they decode to their elements, or they are damaged."""

import pytest
import zstandard

from ckptguard.formats.protocol import ItemReport
from ckptguard.model.layout import Item, ItemKind, Slice
from ckptguard.scan.zarr_chunk import verify_chunk

ELEMENTS = bytes(range(64)) * 4
STORED = zstandard.ZstdCompressor().compress(ELEMENTS)
ZSTD = ("stream.zstd",)


def verified(
    content: bytes, *, dtype: str = "float32", transforms: tuple[str, ...] = ZSTD, piece: int = 1000
) -> ItemReport:
    item = Item("w", ItemKind.TENSOR, 0, len(content), dtype, Slice((0,), (64,)), transforms)
    pieces = (memoryview(content)[start : start + piece] for start in range(0, len(content), piece))
    return verify_chunk(item, pieces)


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_whole_chunk_is_sound_in_any_pieces(piece: int) -> None:
    assert verified(STORED, piece=piece) == ItemReport()
    assert verified(ELEMENTS, transforms=(), piece=piece) == ItemReport()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        STORED[:-1],
        STORED[:9],
        STORED + b"\0",
        zstandard.ZstdCompressor().compress(ELEMENTS * 2),
        b"junk",
    ],
    ids=["empty", "cut", "cut in its header", "longer", "of more elements", "no stream"],
)
def test_another_count_of_bytes_is_damage_and_says_what_came_out(content: bytes) -> None:
    (problem,) = verified(content).problems
    assert problem.code.value == "transform_malformed"
    assert problem.expected == "256 bytes"
    assert problem.observed


def test_a_plain_chunk_has_exactly_its_elements() -> None:
    assert verified(ELEMENTS[:-4], transforms=()).problems


def test_what_cannot_be_decoded_here_is_not_held_against_it() -> None:
    assert verified(b"whatever", transforms=("zarr.codec",)) == ItemReport()
    assert verified(b"whatever", dtype="string") == ItemReport()


def test_all_pieces_are_taken_whatever_is_found() -> None:
    taken = []

    def pieces() -> object:
        for start in range(0, 3000, 1000):
            taken.append(start)
            yield memoryview(bytes(1000))

    item = Item("w", ItemKind.TENSOR, 0, 3000, "float32", Slice((0,), (1,)), ZSTD)
    assert verify_chunk(item, pieces()).problems  # type: ignore[arg-type]
    assert taken == [0, 1000, 2000]

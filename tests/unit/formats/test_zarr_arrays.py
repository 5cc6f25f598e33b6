"""Zarr metadata: which chunks there must be, and what they decode to."""

from typing import Any

import pytest

from ckptguard.errors import FormatError
from ckptguard.formats.zarr_arrays import UNREAD_CODEC, ZSTD, parse_array
from ckptguard.model.layout import Slice

V2: dict[str, Any] = {
    "zarr_format": 2,
    "shape": [5, 3],
    "chunks": [4, 3],
    "dtype": "<f4",
    "compressor": {"id": "zstd", "level": 1},
    "filters": None,
    "dimension_separator": ".",
}
V3: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [5, 3],
    "data_type": "bfloat16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 3]}},
    "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "bytes"}, {"name": "zstd"}],
}


def keys(fields: dict[str, Any]) -> list[str]:
    return [key for key, _ in parse_array("a", fields).chunk_keys()]


def test_chunks_cover_the_array_and_are_stored_whole_at_its_edge() -> None:
    array = parse_array("a", V2)
    assert list(array.chunk_keys()) == [
        ("a/0.0", Slice((0, 0), (4, 3))),
        ("a/1.0", Slice((4, 0), (4, 3))),
    ]
    assert array.within(Slice((4, 0), (4, 3))) == Slice((4, 0), (1, 3))
    assert array.num_chunks == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"shape": [], "chunks": []}, ["a/0"]),
        ({"shape": [0, 3]}, []),
        ({"dimension_separator": "/"}, ["a/0/0", "a/1/0"]),
    ],
)
def test_keys_of_version_2(change: dict[str, Any], expected: list[str]) -> None:
    assert keys(V2 | change) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ["a/c/0/0", "a/c/1/0"]),
        ({"chunk_key_encoding": {"name": "v2"}}, ["a/0.0", "a/1.0"]),
        (
            {"shape": [], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}},
            ["a/c"],
        ),
    ],
)
def test_keys_of_version_3(change: dict[str, Any], expected: list[str]) -> None:
    assert keys(V3 | change) == expected


@pytest.mark.parametrize(
    ("written", "dtype"), [("<f4", "float32"), ("|b1", "bool"), ("<c8", "complex64"), ("bfloat16",) * 2]
)
def test_dtypes_have_torchs_names(written: str, dtype: str) -> None:
    assert parse_array("a", V2 | {"dtype": written}).dtype == dtype


@pytest.mark.parametrize(
    ("fields", "transforms"),
    [
        (V2, (ZSTD,)),
        (V2 | {"compressor": None}, ()),
        (V2 | {"compressor": {"id": "blosc"}}, (UNREAD_CODEC,)),
        (V2 | {"filters": [{"id": "delta"}]}, (UNREAD_CODEC,)),
        (V3, (ZSTD,)),
        (V3 | {"codecs": [{"name": "bytes"}]}, ()),
        (V3 | {"codecs": [{"name": "sharding_indexed"}]}, (UNREAD_CODEC,)),
    ],
)
def test_codecs_that_are_not_undone_here_are_told(
    fields: dict[str, Any], transforms: tuple[str, ...]
) -> None:
    assert parse_array("a", fields).transforms == transforms


@pytest.mark.parametrize(
    "fields",
    [
        {},
        V2 | {"zarr_format": 4},
        V2 | {"shape": [5]},
        V2 | {"shape": [-1, 3]},
        V2 | {"shape": [1 << 63, 3]},
        V2 | {"shape": [True, 3]},
        V2 | {"chunks": [0, 3]},
        V2 | {"shape": "53"},
        V2 | {"dimension_separator": "x"},
        V2 | {"dtype": [["a", "<f4"]]},
        V3 | {"chunk_grid": {"name": "rectangular"}},
        V3 | {"node_type": "group"},
        V3 | {"chunk_key_encoding": {"name": "other"}},
        V3 | {"codecs": "bytes", "shape": None},
    ],
)
def test_what_is_no_array_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        parse_array("a", fields)


def test_more_chunks_than_anything_holds_are_counted_not_made() -> None:
    array = parse_array("a", V2 | {"shape": [1 << 62, 1 << 62], "chunks": [1, 1]})
    assert array.num_chunks == 1 << 124

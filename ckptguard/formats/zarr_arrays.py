"""Zarr arrays, as their `.zarray` (version 2) or `zarr.json` (version 3) describes them.

Which chunks there must be follows from shape and chunk shape. What a chunk decodes to is
known where its codec is zstd or none.

Source: Zarr storage specifications 2 and 3; tensorstore/driver/zarr, zarr3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final

from ckptguard.errors import FormatError
from ckptguard.model.layout import Slice

V2_NAME: Final = ".zarray"
V3_NAME: Final = "zarr.json"

_MAX_DIMS: Final = 64
_MAX_EXTENT: Final = 1 << 63
_V2_DTYPES: Final = {
    **{f"f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
    "b1": "bool",
    "c8": "complex64",
    "c16": "complex128",
}
ZSTD: Final = "stream.zstd"
UNREAD_CODEC: Final = "zarr.codec"
"""A codec that is not undone here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZarrArray:
    """One array.

    Args:
        name: Key of its folder.
        dtype: torch's name where it has one, else as written.
        shape: In elements.
        chunks: Elements of a chunk in each dimension; a chunk is stored whole, also at the edge.
        transforms: What turns a chunk's elements into its bytes; empty: nothing.
        head: What the keys of its chunks begin with, after its name.
        separator: Between the numbers of a chunk.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    transforms: tuple[str, ...]
    head: str
    separator: str

    @property
    def num_chunks(self) -> int:
        """Return how many chunks cover the array."""
        return prod(map(_chunks_along, self.shape, self.chunks))

    def chunk_keys(self) -> Iterator[tuple[str, Slice]]:
        """Yield the key of each chunk, and the elements it stands for, beyond the edge included."""
        for numbers in product(
            *(range(_chunks_along(*pair)) for pair in zip(self.shape, self.chunks, strict=True))
        ):
            offsets = tuple(number * size for number, size in zip(numbers, self.chunks, strict=True))
            yield f"{self.name}/{self._key(numbers)}", Slice(offsets, self.chunks)

    def within(self, part: Slice) -> Slice:
        """Return the elements of a chunk that are elements of the array."""
        sizes = (
            min(size, dim - offset)
            for size, dim, offset in zip(part.sizes, self.shape, part.offsets, strict=True)
        )
        return Slice(part.offsets, tuple(sizes))

    def _key(self, numbers: tuple[int, ...]) -> str:
        if not numbers:
            return self.head.rstrip("/") or "0"
        return self.head + self.separator.join(map(str, numbers))


def _chunks_along(dim: int, size: int) -> int:
    return -(-dim // size)


def parse_array(name: str, fields: Mapping[str, Any]) -> ZarrArray:
    """Understand an array's metadata.

    Args:
        name: Key of its folder.
        fields: The parsed JSON.

    Raises:
        FormatError: It is none.
    """
    match fields.get("zarr_format"):
        case 2:
            return _version_2(name, fields)
        case 3:
            return _version_3(name, fields)
    msg = f"zarr_format is {str(fields.get('zarr_format'))[:40]!r}"
    raise FormatError(msg)


def _version_2(name: str, fields: Mapping[str, Any]) -> ZarrArray:
    separator = fields.get("dimension_separator", ".")
    shape, chunks = _extents(fields, "shape"), _extents(fields, "chunks", least=1)
    dtype = fields.get("dtype")
    if separator not in (".", "/") or len(shape) != len(chunks) or not isinstance(dtype, str):
        msg = "shape, chunks, dtype or separator are not those of an array"
        raise FormatError(msg)
    return ZarrArray(
        name=name,
        dtype=_V2_DTYPES.get(dtype[1:], dtype) if dtype[:1] in ("<", ">", "|") else dtype,
        shape=shape,
        chunks=chunks,
        transforms=_v2_transforms(fields),
        head="",
        separator=separator,
    )


def _v2_transforms(fields: Mapping[str, Any]) -> tuple[str, ...]:
    if fields.get("filters"):
        return (UNREAD_CODEC,)
    match fields.get("compressor"):
        case None:
            return ()
        case {"id": "zstd"}:
            return (ZSTD,)
    return (UNREAD_CODEC,)


def _version_3(name: str, fields: Mapping[str, Any]) -> ZarrArray:
    match fields.get("chunk_grid"):
        case {"name": "regular", "configuration": dict(grid)}:
            chunks = _extents(grid, "chunk_shape", least=1)
        case _:
            msg = "no regular chunk grid"
            raise FormatError(msg)
    shape, dtype = _extents(fields, "shape"), fields.get("data_type")
    if fields.get("node_type") != "array" or len(shape) != len(chunks):
        msg = "no array, or shape and chunks of different dimensions"
        raise FormatError(msg)
    head, separator = _key_encoding(fields.get("chunk_key_encoding"))
    return ZarrArray(
        name=name,
        dtype=dtype if isinstance(dtype, str) else "unknown",
        shape=shape,
        chunks=chunks,
        transforms=_v3_transforms(fields.get("codecs")),
        head=head,
        separator=separator,
    )


def _key_encoding(value: object) -> tuple[str, str]:
    match value:
        case {"name": "default" | "v2" as kind}:
            options = value.get("configuration") if isinstance(value, dict) else None
            default = "/" if kind == "default" else "."
            separator = options.get("separator", default) if isinstance(options, dict) else default
            if separator in (".", "/"):
                return (f"c{separator}" if kind == "default" else ""), str(separator)
    msg = "a chunk key encoding that is not known"
    raise FormatError(msg)


def _v3_transforms(codecs: object) -> tuple[str, ...]:
    names = (
        [codec.get("name") if isinstance(codec, dict) else None for codec in codecs]
        if isinstance(codecs, list)
        else []
    )
    if names == ["bytes"]:
        return ()
    return (ZSTD,) if names == ["bytes", "zstd"] else (UNREAD_CODEC,)


def _extents(fields: Mapping[str, Any], key: str, *, least: int = 0) -> tuple[int, ...]:
    value = fields.get(key)
    sizes = tuple(
        size
        for size in (value if isinstance(value, list) else ())
        if isinstance(size, int) and not isinstance(size, bool) and least <= size < _MAX_EXTENT
    )
    if not isinstance(value, list) or len(value) > _MAX_DIMS or len(sizes) != len(value):
        msg = f"{key} is no list of sizes"
        raise FormatError(msg)
    return sizes

"""Where the adapters say that values lie, the writer's values lie: by the SHA-256 that each had."""

import hashlib
import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from numpy.typing import NDArray

from ckptguard.formats.discover import discover
from ckptguard.formats.orbax_store import read_key_map
from ckptguard.formats.zarr_arrays import ZSTD, ZarrArray, parse_array
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore

OWN_DATA = Path(__file__).resolve().parent.parent / "data" / "corpus"
ITEMSIZES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint32": 4, "bfloat16": 2}


def expected_of(path: Path) -> dict[str, dict[str, Any]]:
    expected = json.loads(path.with_suffix(".json").read_text())["expected"]
    return {entry["fqn"]: entry for entry in expected if "sha256" in entry}


def opened(folder: Path) -> tuple[LocalStore, Listing, tuple[Layout, ...]]:
    store = LocalStore(folder)
    checkpoint = discover(store, list_folder(store, "", max_files=1000), Limits())
    return store, list_folder(store, checkpoint.root, max_files=1000), checkpoint.layouts


def test_every_tensor_of_a_snapshot_lies_where_it_is_said_to_lie(corpus_dir: Path) -> None:
    folder = corpus_dir / "torchsnapshot_ddp_ws2"
    expected = expected_of(folder)
    _, _, (layout,) = opened(folder)
    found = 0
    for shard in layout.shards:
        content = (folder / shard.path).read_bytes()
        for item in shard.items:
            entry = expected.get(item.fqn.replace("/", "."))
            if item.slice is not None and entry is not None:
                value = content[item.offset : item.offset + item.length_bytes]
                assert hashlib.sha256(value).hexdigest() == entry["sha256"], item.fqn
                assert [item.dtype, list(item.slice.sizes)] == [entry["dtype"][6:], entry["shape"]], item.fqn
                found += 1
    assert found == len(expected)


@pytest.mark.parametrize("name", ["orbax_pytree_zarr", "orbax_ocdbt"])
def test_every_array_of_orbax_is_made_of_the_chunks_that_are_named(name: str, corpus_dir: Path) -> None:
    folder = OWN_DATA / name if (OWN_DATA / name).is_dir() else corpus_dir / name
    arrays = dict(arrays_of(folder))
    expected = expected_of(folder)
    assert set(arrays) == set(expected)
    for fqn, value in arrays.items():
        assert list(value.shape[:-1]) == expected[fqn]["shape"], fqn
        assert hashlib.sha256(value.tobytes()).hexdigest() == expected[fqn]["sha256"], fqn


def arrays_of(folder: Path) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield each array as bytes, with the bytes of an element as its last dimension."""
    store, listing, layouts = opened(folder)
    part = next(layout.part for layout in layouts if layout.tensors)
    listing = listing.below(part)
    keys = read_key_map(store, listing, Limits())
    root = folder / listing.root

    def read(key: str) -> bytes:
        value = keys.values[key]
        if value.inline is not None:
            return value.inline
        return (root / value.path).read_bytes()[value.offset : value.offset + value.length_bytes]

    for key in sorted(key for key in keys.values if key.endswith("/.zarray")):
        array = parse_array(key.removesuffix("/.zarray"), json.loads(read(key)))
        yield array.name, assembled(array, {chunk: read(chunk) for chunk, _ in array.chunk_keys()})


def assembled(array: ZarrArray, chunks: dict[str, bytes]) -> NDArray[np.uint8]:
    itemsize = ITEMSIZES[array.dtype]
    value = np.zeros((*array.shape, itemsize), np.uint8)
    assert array.transforms == (ZSTD,)
    for key, part in array.chunk_keys():
        size = prod(part.sizes) * itemsize
        raw = zstandard.ZstdDecompressor().decompress(chunks[key], max_output_size=size)
        chunk = np.frombuffer(raw, np.uint8).reshape((*part.sizes, itemsize))
        within = array.within(part)
        place = tuple(
            slice(start, start + count) for start, count in zip(within.offsets, within.sizes, strict=True)
        )
        value[place] = chunk[tuple(slice(count) for count in within.sizes)]
    return value

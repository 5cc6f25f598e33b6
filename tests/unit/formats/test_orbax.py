"""The Orbax adapter: what its metadata demands, and what it leaves open."""

import json
from typing import Any

import pytest

from ckptguard.checks.coverage import check_coverage
from ckptguard.formats.orbax import ADAPTER
from ckptguard.model.finding import Severity
from ckptguard.model.layout import Encoding, Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.memory import MemoryStore

ARRAY = json.dumps(
    {"zarr_format": 2, "shape": [3], "chunks": [2], "dtype": "<f4", "compressor": None, "filters": None}
).encode()
WHOLE = {"w/.zarray": ARRAY, "w/0": bytes(8), "w/1": bytes(8)}


def leaf(*keys: str, kind: str = "jax.Array", **facts: object) -> dict[str, Any]:
    names = [{"key": key, "key_type": 2} for key in keys]
    return {"key_metadata": names, "value_metadata": {"value_type": kind, **facts}}


def tree(*leaves: dict[str, Any], **facts: object) -> bytes:
    stated = {"use_ocdbt": False, "store_array_data_equal_to_fill_value": True, **facts}
    return json.dumps(
        {"tree_metadata": {str(index): one for index, one in enumerate(leaves)}, **stated}
    ).encode()


def checkpoint(**fields: object) -> bytes:
    return json.dumps({"item_handlers": None, "commit_timestamp_nsecs": 1, **fields}).encode()


def opened(files: dict[str, bytes], escapes: tuple[str, ...] = ()) -> Layout:
    store = MemoryStore(files)
    listed = list_folder(store, "", max_files=100)
    (layout,) = ADAPTER.open(store, Listing(root="", files=listed.files, escapes=escapes), Limits())
    return layout


def codes(layout: Layout) -> list[tuple[str, Severity]]:
    findings = (*layout.findings, *check_coverage([layout]))
    return [(finding.code.value, finding.severity) for finding in findings]


def test_chunks_are_items_of_their_files() -> None:
    layout = opened({"_METADATA": tree(leaf("w")), **WHOLE})
    assert [(shard.path, shard.encoding) for shard in layout.shards] == [
        ("w/0", Encoding.ZARR_CHUNKS),
        ("w/1", Encoding.ZARR_CHUNKS),
    ]
    (tensor,) = layout.tensors
    assert (tensor.fqn, tensor.shape, len(tensor.slices)) == ("w", (3,), 2)
    assert codes(layout) == []


def test_a_chunk_that_must_be_there_is_a_shard_without_a_file() -> None:
    files = {"_METADATA": tree(leaf("w")), **WHOLE}
    del files["w/1"]
    assert [shard.path for shard in opened(files).shards] == ["w/0", "w/1"]


def test_a_chunk_that_may_be_zeros_is_in_doubt() -> None:
    stated = tree(leaf("w"), store_array_data_equal_to_fill_value=False)
    files = {"_METADATA": stated, **WHOLE}
    del files["w/1"]
    layout = opened(files)
    assert [shard.path for shard in layout.shards] == ["w/0"]
    assert codes(layout) == [("missing_item", Severity.UNKNOWN)]


@pytest.mark.parametrize(
    "one", [leaf("w", kind="None"), leaf("w", kind="string"), leaf("w", skip_deserialize=True), leaf()]
)
def test_leaves_that_are_stored_otherwise_demand_no_array(one: dict[str, Any]) -> None:
    assert codes(opened({"_METADATA": tree(one)})) == []


def test_a_named_array_must_be_there() -> None:
    assert codes(opened({"_METADATA": tree(leaf("a", "b"))})) == [("missing_shard", Severity.ERROR)]


def test_a_name_that_may_be_written_otherwise_is_in_doubt_only() -> None:
    assert codes(opened({"_METADATA": tree(leaf("a/b"))})) == [("missing_shard", Severity.UNKNOWN)]


def test_what_is_a_link_out_of_the_root_is_not_called_lost() -> None:
    layout = opened({"_METADATA": tree(leaf("w"))}, escapes=("w",))
    assert codes(layout) == [("path_escape", Severity.UNKNOWN)]


@pytest.mark.parametrize("name", ["_METADATA", "_CHECKPOINT_METADATA"])
def test_metadata_behind_a_link_is_in_doubt(name: str) -> None:
    layout = opened({"other": b""}, escapes=(name,))
    assert codes(layout) == [("path_escape", Severity.UNKNOWN)]


def test_a_database_that_was_never_merged_is_not_committed() -> None:
    files = {"_METADATA": tree(leaf("w"), use_ocdbt=True), "ocdbt.process_0/manifest.ocdbt": b"x"}
    assert ("not_committed", Severity.ERROR) in codes(opened(files))


@pytest.mark.parametrize(
    ("fields", "marker", "expected"),
    [
        ({}, False, []),
        ({"commit_timestamp_nsecs": None}, True, []),
        ({"commit_timestamp_nsecs": None}, False, [("not_committed", Severity.UNKNOWN)]),
    ],
)
def test_a_commit_is_told_by_its_time_or_its_marker(
    fields: dict[str, object], expected: list[tuple[str, Severity]], *, marker: bool
) -> None:
    files = {"_CHECKPOINT_METADATA": checkpoint(**fields), "_METADATA": tree(leaf("w")), **WHOLE}
    if marker:
        files["commit_success.txt"] = b"x"
    assert codes(opened(files)) == expected


def test_items_in_folders_are_parts_of_their_own_and_a_lost_one_is_in_doubt() -> None:
    files = {
        "_CHECKPOINT_METADATA": checkpoint(
            item_handlers={"state": "a.StandardCheckpointHandler", "meta": "y"}
        )
    }
    layout = opened({**files, "state/_METADATA": tree(), "meta/metadata": b"{}"})
    assert (codes(layout), layout.sidecars) == ([], ("meta/metadata",))
    assert codes(opened({**files, "meta/metadata": b"{}"})) == [("missing_shard", Severity.UNKNOWN)]
    assert codes(opened({**files, "state/d/1": b"", "meta/metadata": b"{}"})) == [
        ("missing_shard", Severity.UNKNOWN)
    ]
    assert codes(opened({**files, "state/_METADATA": tree()})) == [("missing_shard", Severity.UNKNOWN)]


def test_metadata_that_stands_alone_is_no_checkpoint() -> None:
    assert codes(opened({"_CHECKPOINT_METADATA": checkpoint()})) == [("unknown_layout", Severity.UNKNOWN)]
    assert codes(opened({"_CHECKPOINT_METADATA": checkpoint(), **WHOLE})) == [
        ("unknown_layout", Severity.UNKNOWN)
    ]

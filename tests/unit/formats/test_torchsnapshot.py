"""torchsnapshot's metadata: entries of all ranks put together, and none that cannot be."""

import json
from typing import Any

import pytest

from ckptguard.checks.coverage import check_coverage
from ckptguard.formats.torchsnapshot import ADAPTER
from ckptguard.model.finding import Severity
from ckptguard.model.layout import Encoding, Layout, Slice
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.memory import MemoryStore

Entry = dict[str, Any]


def tensor(shape: list[int], location: str, **changes: object) -> Entry:
    return {
        "type": "Tensor",
        "location": location,
        "serializer": "buffer_protocol",
        "dtype": "torch.float32",
        "shape": shape,
        "replicated": False,
        "byte_range": None,
        **changes,
    }


def sharded(kind: str, *shards: tuple[list[int], Entry], **stated: object) -> Entry:
    key = "chunks" if kind == "ChunkedTensor" else "shards"
    parts = [{"offsets": offsets, "sizes": one["shape"], "tensor": one} for offsets, one in shards]
    return {"type": kind, key: parts, "replicated": False, **stated}


def opened(
    manifest: dict[str, Any], *, world_size: object = 2, files: dict[str, bytes] | None = None
) -> Layout:
    text = json.dumps({"version": "0.1.0", "world_size": world_size, "manifest": manifest}).encode()
    return opened_text(text, files or {})


def opened_text(text: bytes, files: dict[str, bytes]) -> Layout:
    store = MemoryStore({".snapshot_metadata": text, **files})
    (layout,) = ADAPTER.open(store, list_folder(store, "", max_files=100), Limits())
    return layout


def codes(layout: Layout) -> list[tuple[str, Severity]]:
    return [(finding.code.value, finding.severity) for finding in layout.findings]


def test_a_tensor_of_one_rank_keeps_its_rank_in_its_name() -> None:
    layout = opened({"0/app/w": tensor([2, 3], "0/app/w"), "1/app/w": tensor([2, 3], "1/app/w")})
    assert [tensor.fqn for tensor in layout.tensors] == ["0/app/w", "1/app/w"]
    shard = layout.shards[0]
    assert (shard.encoding, shard.exact_length_bytes) == (Encoding.RAW, 24)


def test_a_replicated_tensor_is_one_whatever_ranks_name_it() -> None:
    entry = tensor([4], "replicated/app/w", replicated=True)
    layout = opened({"0/app/w": entry, "1/app/w": entry})
    assert [tensor.fqn for tensor in layout.tensors] == ["app/w"]
    assert len(layout.shards[0].items) == 1


@pytest.mark.parametrize("kind", ["ShardedTensor", "DTensor"])
def test_shards_of_all_ranks_are_one_tensor_and_replicas_count_once(kind: str) -> None:
    low, high = ([0, 0], tensor([2, 4], "sharded/w.0")), ([2, 0], tensor([1, 4], "sharded/w.1"))
    layout = opened({"0/app/w": sharded(kind, low, high), "1/app/w": sharded(kind, high)})
    (whole,) = layout.tensors
    assert (whole.fqn, whole.shape) == ("app/w", (3, 4))
    assert whole.slices == (Slice((0, 0), (2, 4)), Slice((2, 0), (1, 4)))
    assert check_coverage([layout]) == ()
    assert "the loss of outermost shards" in layout.notes[0]


def test_a_chunked_tensor_states_its_shape_so_that_a_lost_chunk_is_a_hole() -> None:
    chunk = ([0, 0], tensor([2, 4], "0/w_0"))
    layout = opened({"0/app/w": sharded("ChunkedTensor", chunk, shape=[3, 4], dtype="torch.float32")})
    (finding,) = check_coverage([layout])
    assert finding.code.value == "coverage_hole"


def test_batched_tensors_share_a_file() -> None:
    layout = opened(
        {
            "0/a": tensor([2], "batched/x", byte_range=[8, 16]),
            "0/b": tensor([2], "batched/x", byte_range=[0, 8]),
        }
    )
    (shard,) = layout.shards
    assert [item.offset for item in shard.items] == [0, 8]
    assert (shard.min_length_bytes, shard.exact_length_bytes) == (16, None)


def test_objects_are_torch_save_files_and_other_serializers_opaque() -> None:
    layout = opened(
        {
            "0/o": {"type": "object", "location": "0/o", "serializer": "torch_save", "obj_type": "x"},
            "0/p": {"type": "object", "location": "0/p", "serializer": "pickle", "obj_type": "x"},
            "0/q": tensor([2], "0/q", dtype="torch.qint8", serializer="per_tensor_qtensor"),
        },
        files={"0/o": b"zip", "0/p": b"x", "0/q": b"xx"},
    )
    assert [shard.encoding for shard in layout.shards] == [
        Encoding.TORCH_SAVE,
        Encoding.OPAQUE,
        Encoding.OPAQUE,
    ]
    assert layout.objects == ("0/o", "0/p")
    assert codes(layout) == []


@pytest.mark.parametrize(
    "entry",
    [
        "text",
        tensor([-1], "w"),
        tensor([1 << 62, 1 << 62], "w"),
        tensor([2], "w", byte_range=[0, 7]),
        tensor([2], "w", byte_range=[8, 0]),
        tensor([2], "w", dtype=None),
        tensor([2], "w") | {"location": 3},
        sharded("DTensor") | {"shards": None},
        {"type": "ShardedTensor", "shards": [{"offsets": [0], "sizes": [3], "tensor": tensor([2], "w")}]},
    ],
)
def test_an_entry_that_no_load_could_use_condemns(entry: object) -> None:
    layout = opened({"0/w": entry})
    assert codes(layout) == [("malformed_metadata", Severity.ERROR)]


@pytest.mark.parametrize("location", ["../w", "/etc/w", "a/../../w"])
def test_a_place_outside_is_not_opened(location: str) -> None:
    layout = opened({"0/w": tensor([2], location)})
    assert codes(layout) == [("path_escape", Severity.ERROR)]
    assert layout.shards == ()


def test_what_is_newer_is_in_doubt() -> None:
    assert codes(opened({"0/w": {"type": "Sparse"}})) == [("malformed_metadata", Severity.UNKNOWN)]


def test_a_key_without_an_entry_is_in_doubt_unless_another_rank_has_it() -> None:
    keys = {"type": "dict", "keys": ["a/b", 7]}
    entries = {"1/app": keys, "0/app/a%2Fb": tensor([1], "x"), "0/app/7": tensor([1], "y")}
    assert codes(opened(entries)) == []
    del entries["0/app/7"]
    assert codes(opened(entries)) == [("missing_item", Severity.UNKNOWN)]


@pytest.mark.parametrize("text", [b"version: 0.0.1\nworld_size: 2\n", b"manifest: {}\n"])
def test_yaml_of_early_versions_is_told_not_condemned(text: bytes) -> None:
    assert codes(opened_text(text, {})) == [("unknown_layout", Severity.UNKNOWN)]


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a":1,"a":2}', bytes(40), b'{"manifest": {}}'])
def test_what_is_no_metadata_condemns(text: bytes) -> None:
    assert codes(opened_text(text, {}))[0][1] is Severity.ERROR

"""Meta's torch_checkpointing: the files that its metadata demands."""

import pickle
from typing import Any

import pytest

from ckptguard.formats.torch_checkpointing import ADAPTER
from ckptguard.model.finding import Severity
from ckptguard.model.layout import Encoding, Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.memory import MemoryStore

ZIP = b"PK\x03\x04\x00\x00\x08\x08" + bytes(22) + b"archive/data.pklFB" + b"Z" * 40


def metadata(items: dict[str, Any], *, world_size: int = 2) -> bytes:
    facts = {name: {"rank_to_layout_info": ranks} for name, ranks in items.items()}
    return pickle.dumps({"version": "2.0", "world_size": world_size, "metadata": facts}, protocol=4)


def opened(data: bytes, names: list[str]) -> Layout:
    store = MemoryStore({"metadata.pkl": data, **dict.fromkeys(names, ZIP)})
    (layout,) = ADAPTER.open(store, list_folder(store, "", max_files=100), Limits())
    return layout


def codes(layout: Layout) -> list[tuple[str, Severity]]:
    return [(finding.code.value, finding.severity) for finding in layout.findings]


def paths(layout: Layout) -> list[str]:
    return [shard.path for shard in layout.shards]


def test_each_rank_of_an_item_has_its_file() -> None:
    layout = opened(metadata({"model": {0: None, 1: None}}), ["model_0.pt"])
    assert paths(layout) == ["model_0.pt", "model_1.pt"]
    assert {shard.encoding for shard in layout.shards} == {Encoding.TORCH_SAVE}


def test_a_layout_may_name_files_otherwise() -> None:
    info = {"file_path": "sub/weights.safetensors", "serialization_format": {"type": "Safetensors"}}
    layout = opened(metadata({"model": {0: info, 1: info}}), ["other_0.pt"])
    assert paths(layout) == ["other_0.pt", "sub/weights.safetensors"]
    assert layout.shards[1].encoding is Encoding.OPAQUE


def test_what_only_rank_0_writes_is_whole_and_a_gap_is_not() -> None:
    assert codes(opened(metadata({}, world_size=3), ["train_0.pt"])) == []
    layout = opened(metadata({}, world_size=3), ["train_0.pt", "train_1.pt"])
    assert codes(layout) == [("missing_shard", Severity.UNKNOWN)]


def test_files_of_a_larger_world_are_told_and_not_judged() -> None:
    layout = opened(metadata({"m": {0: None, 1: None}}), ["m_0.pt", "m_1.pt", "m_2.pt"])
    assert paths(layout) == ["m_0.pt", "m_1.pt"]
    assert codes(layout) == [("unreferenced_file", Severity.WARNING)]


def test_a_path_outside_is_not_opened() -> None:
    layout = opened(metadata({"m": {0: {"file_path": "../m.pt"}}}, world_size=1), ["n_0.pt"])
    assert codes(layout) == [("path_escape", Severity.ERROR)]
    assert paths(layout) == ["n_0.pt"]


def test_a_call_in_the_pickle_is_unsafe_and_is_not_run() -> None:
    data = pickle.dumps({"world_size": 1, "metadata": {}})[:-1] + b"cos\nsystem\n(S'true'\ntR."
    layout = opened(data, ["m_0.pt"])
    assert layout.stock_globals == {"os.system"}


@pytest.mark.parametrize(
    "value", [[], {"world_size": 0, "metadata": {}}, {"metadata": {}}, {"world_size": 2}]
)
def test_another_structure_is_in_doubt(value: object) -> None:
    assert codes(opened(pickle.dumps(value), ["m_0.pt"])) == [("malformed_metadata", Severity.UNKNOWN)]


@pytest.mark.parametrize("data", [b"", b"\x80\x04}", bytes(20), b"junk"])
def test_what_is_no_pickle_condemns(data: bytes) -> None:
    ((_, severity),) = codes(opened(data, ["m_0.pt"]))
    assert severity is Severity.ERROR

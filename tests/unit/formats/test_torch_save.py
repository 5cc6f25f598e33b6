"""The torch.save adapter: which files are ours, which are missing, which cannot be proven."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from ckptguard.formats.torch_save import ADAPTER
from ckptguard.formats.torch_save_sets import find_missing
from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.model.finding import Severity
from ckptguard.model.layout import Encoding, Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore
from ckptguard.storage.memory import MemoryStore

ZIP = b"PK\x03\x04\x00\x00\x08\x08" + bytes(22) + b"archive/data.pklFB" + b"Z" * 40
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
SCRIPT = b"PK\x03\x04\x00\x00\x08\x08" + bytes(22) + b"model/data/0FB" + b"Z" * 40


def opened(files: dict[str, bytes]) -> Layout:
    store = MemoryStore(files)
    (layout,) = ADAPTER.open(store, list_folder(store, "", max_files=100), Limits())
    return layout


def listing_of(names: Iterable[str]) -> Listing:
    return list_folder(MemoryStore(dict.fromkeys(names, b"")), "", max_files=100)


@pytest.mark.parametrize("name", ["model.pt", "w.pth", "model.bin", "last.ckpt", "random_states_0.pkl"])
def test_usual_suffixes_are_recognised(name: str) -> None:
    assert ADAPTER.recognises(listing_of([name, "config.json"]))


@pytest.mark.parametrize("name", ["model.safetensors", "__0_0.distcp", ".hidden.pt", "deep/model.pt", "pt"])
def test_others_are_not(name: str) -> None:
    assert not ADAPTER.recognises(listing_of([name]))


def test_a_whole_file_is_one_item() -> None:
    layout = opened({"model.pt": ZIP, "config.json": b"{}", "notes.csv": b""})
    (shard,) = layout.shards
    (item,) = shard.items
    assert shard.encoding is Encoding.TORCH_SAVE
    assert (item.fqn, item.offset, item.length_bytes) == ("model.pt", 0, len(ZIP))
    assert shard.min_length_bytes == len(ZIP)
    assert layout.objects == ("model.pt",)
    assert layout.sidecars == ("config.json",)
    assert layout.stock_reader_gap == "torch.save file, not a DCP folder"


@pytest.mark.parametrize("content", [LEGACY, SCRIPT, b"\x80\x04}."], ids=["legacy", "TorchScript", "pickle"])
def test_what_holds_no_checksum_is_opaque_and_said(content: bytes) -> None:
    layout = opened({"model.pt": content})
    (shard,) = layout.shards
    assert (shard.encoding, shard.items) == (Encoding.OPAQUE, ())
    assert layout.notes == ("model.pt: no zip of torch.save, so its content cannot be proven",)


@pytest.mark.parametrize(
    "content",
    [b"", bytes(1000), b"\0" + ZIP, b"XK" + ZIP[2:], ZIP[:33] + b"X" + ZIP[34:], ZIP[:40] + b"X" + ZIP[41:]],
    ids=["empty", "zeros", "shifted", "magic", "archive name", "pickle name"],
)
def test_a_damaged_beginning_does_not_hide_a_file(content: bytes) -> None:
    (shard,) = opened({"model.pt": content}).shards
    assert shard.encoding is Encoding.TORCH_SAVE
    (item,) = shard.items
    verifier = ZipVerifier(item.length_bytes)
    for _ in verifier.feed(memoryview(content)):
        pass
    assert verifier.finish().problems


def test_a_foreign_file_with_a_shared_suffix_is_a_sidecar() -> None:
    layout = opened({"tokens.bin": b"\x01\x02\x03\x04", "model.pt": ZIP})
    assert [shard.path for shard in layout.shards] == ["model.pt"]
    assert layout.sidecars == ("tokens.bin",)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"], []),
        (["model_world_size_3_rank_2.pt"], ["model_world_size_3_rank_0.pt", "model_world_size_3_rank_1.pt"]),
        (["pytorch_model-00002-of-00002.bin"], ["pytorch_model-00001-of-00002.bin"]),
        (
            ["zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_2_mp_rank_00_optim_states.pt"],
            ["zero_pp_rank_1_mp_rank_00_optim_states.pt"],
        ),
        (
            [
                "zero_pp_rank_0_mp_rank_00_model_states.pt",
                "zero_pp_rank_1_mp_rank_00_model_states.pt",
                "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
            ],
            ["bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"],
        ),
        (["random_states_1.pkl"], ["random_states_0.pkl"]),
        (["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt", "model.pt"], []),
        (["model_world_size_999999_rank_0.pt"], []),
    ],
)
def test_missing_ranks_are_named(names: list[str], missing: list[str]) -> None:
    assert list(find_missing(names)) == missing


def test_ranks_of_olmo_core_are_known_in_its_own_folder_only() -> None:
    names = ["rank1.pt", "rank3.pt"]
    assert find_missing(names, folder="train") == ("rank0.pt", "rank2.pt")
    assert find_missing(names, folder="experts") == ()


def test_a_missing_rank_stands_in_the_layout() -> None:
    layout = opened({"model_world_size_2_rank_0.pt": ZIP})
    assert [(shard.path, len(shard.items)) for shard in layout.shards] == [
        ("model_world_size_2_rank_0.pt", 1),
        ("model_world_size_2_rank_1.pt", 0),
    ]


@pytest.mark.parametrize(
    ("folder", "num_shards"),
    [
        ("deepspeed_zero1_ws2/global_step1", 3),
        ("deepspeed_zero3_ws2/global_step1", 4),
        ("verl_fsdp2_ws2/global_step_1/actor", 6),
        ("accelerate_save_state_ddp_ws2", 4),
    ],
)
def test_real_folders_are_whole_and_proven(corpus_dir: Path, folder: str, num_shards: int) -> None:
    store = LocalStore(corpus_dir)
    listing = list_folder(store, folder, max_files=100)
    assert ADAPTER.recognises(listing)
    (layout,) = ADAPTER.open(store, listing, Limits())
    assert [one for one in layout.findings if one.severity is not Severity.INFO] == []
    assert layout.notes == ()
    assert len(layout.shards) == num_shards
    for shard in layout.shards:
        content = (corpus_dir / folder / shard.path).read_bytes()
        verifier = ZipVerifier(shard.items[0].length_bytes)
        for _ in verifier.feed(memoryview(content)):
            pass
        assert verifier.finish().problems == ()


def test_where_nothing_states_how_many_ranks_there_were_that_is_said() -> None:
    layout = opened({"random_states_0.pkl": ZIP, "random_states_1.pkl": ZIP, "optimizer.bin": ZIP})
    (finding,) = layout.findings
    assert (finding.code.value, finding.severity.value) == ("rank_local_metadata", "info")
    assert finding.file == "random_states_1.pkl"
    assert opened({"model_world_size_1_rank_0.pt": ZIP}).findings == ()

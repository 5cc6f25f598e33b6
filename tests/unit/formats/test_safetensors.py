"""The adapter: single files, indexes, ranks; B32, B33, F14, F31."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ckptguard.errors import LimitExceededError
from ckptguard.formats.safetensors import ADAPTER
from ckptguard.model.finding import CheckName, FindingCode, Severity
from ckptguard.model.layout import Encoding, Layout, Slice
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def write(
    path: Path, tensors: Mapping[str, tuple[int, ...]], *, offsets: Mapping[str, list[int]] | None = None
) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    if offsets is not None:
        info = {fqn: {"saved_offsets": at} for fqn, at in offsets.items()}
        header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(info)
    end = 0
    for fqn, shape in tensors.items():
        start, end = end, end + 4 * _count(shape)
        header[fqn] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def listing_of(folder: Path) -> tuple[LocalStore, Listing]:
    store = LocalStore(folder)
    return store, list_folder(store, "", max_files=100)


def open_folder(folder: Path, limits: Limits | None = None) -> tuple[Layout, ...]:
    store, listing = listing_of(folder)
    assert ADAPTER.recognises(listing)
    return ADAPTER.open(store, listing, limits or Limits())


def facts(layout: Layout) -> list[tuple[FindingCode, Severity]]:
    return [(finding.code, finding.severity) for finding in layout.findings]


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write(tmp_path / FIRST, {"a": (2, 3), "b": (4,)})
    write(tmp_path / SECOND, {"c": (5,)})
    write_index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND}, total_size=60)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "._model.safetensors").write_bytes(b"litter")
    return tmp_path


def write_index(folder: Path, weight_map: Mapping[str, object], total_size: float | None = None) -> None:
    metadata = {} if total_size is None else {"total_size": total_size}
    (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))


def test_a_sharded_model_is_one_layout_with_exact_lengths(sharded: Path) -> None:
    (layout,) = open_folder(sharded)
    assert layout.findings == ()
    assert [shard.path for shard in layout.shards] == [FIRST, SECOND]
    assert [tensor.fqn for tensor in layout.tensors] == ["a", "b", "c"]
    assert layout.tensors[0].shape == (2, 3)
    assert layout.tensors[0].slices == (Slice((0, 0), (2, 3)),)
    assert {shard.encoding for shard in layout.shards} == {Encoding.SAFETENSORS}
    for shard in layout.shards:
        assert shard.exact_length_bytes == (sharded / shard.path).stat().st_size
        assert shard.items[-1].offset + shard.items[-1].length_bytes == shard.exact_length_bytes
    assert [file.path for file in layout.metadata_files] == [INDEX]
    assert layout.sidecars == ("config.json",)
    assert layout.stock_reader_gap is not None


def test_a_missing_shard_stays_in_the_layout_with_the_tensors_lost(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    (layout,) = open_folder(sharded)
    lost = layout.shards[1]
    assert lost.path == SECOND
    assert [item.fqn for item in lost.items] == ["c"]
    assert layout.findings == ()  # the check of existence says it
    assert layout.missing_items == ()


def test_a_tensor_in_a_file_that_the_index_never_names_is_found_there(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "b": FIRST, "c": FIRST})
    (layout,) = open_folder(sharded)
    (finding,) = layout.findings
    assert (finding.code, finding.severity) == (FindingCode.INDEX_MISMATCH, Severity.ERROR)
    assert (finding.fqn, finding.expected, finding.observed) == ("c", FIRST, SECOND)
    assert [shard.path for shard in layout.shards] == [FIRST]


def test_the_index_places_a_tensor_in_the_wrong_shard(sharded: Path) -> None:
    write(sharded / SECOND, {"c": (5,), "d": (1,)})
    write_index(sharded, {"a": FIRST, "b": FIRST, "c": FIRST, "d": SECOND})
    (layout,) = open_folder(sharded)
    (finding,) = layout.findings
    assert (finding.code, finding.severity) == (FindingCode.INDEX_MISMATCH, Severity.ERROR)
    assert (finding.fqn, finding.expected, finding.observed) == ("c", FIRST, SECOND)


def test_a_tensor_of_the_index_that_stands_nowhere_is_a_missing_item(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND, "lm_head": SECOND})
    (layout,) = open_folder(sharded)
    assert layout.missing_items == (("lm_head", None),)


def test_a_tensor_that_the_index_leaves_out_is_a_warning(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "c": SECOND})
    (layout,) = open_folder(sharded)
    assert facts(layout) == [(FindingCode.INDEX_MISMATCH, Severity.WARNING)]
    assert layout.findings[0].fqn == "b"


@pytest.mark.parametrize("total", [59, 61])
def test_a_wrong_total_size_alone_is_a_warning(sharded: Path, total: int) -> None:
    write_index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND}, total_size=total)
    (layout,) = open_folder(sharded)
    assert facts(layout) == [(FindingCode.INDEX_MISMATCH, Severity.WARNING)]
    assert (layout.findings[0].expected, layout.findings[0].observed) == (str(total), "60")


def test_a_total_size_written_as_a_float_is_legal(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND}, total_size=60.0)
    assert open_folder(sharded)[0].findings == ()


def test_an_index_of_another_build_is_in_doubt_and_the_files_are_judged_by_themselves(
    sharded: Path,
) -> None:
    write_index(sharded, {f"t{i}": f"model-{i:05d}-of-00013.safetensors" for i in range(1, 14)})
    (layout,) = open_folder(sharded)
    assert facts(layout) == [(FindingCode.INDEX_MISMATCH, Severity.UNKNOWN)]
    assert [shard.path for shard in layout.shards] == [FIRST, SECOND]


def test_an_index_alone_misses_all_of_its_shards(sharded: Path) -> None:
    for name in (FIRST, SECOND, "._model.safetensors"):
        (sharded / name).unlink()
    (layout,) = open_folder(sharded)
    assert [shard.path for shard in layout.shards] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", FindingCode.EMPTY_METADATA),
        ('{"weight_map": {"a": ', FindingCode.MALFORMED_METADATA),
        ("[]", FindingCode.MALFORMED_METADATA),
        ("{}", FindingCode.MALFORMED_METADATA),
        ('{"weight_map": {"a": 1}}', FindingCode.MALFORMED_METADATA),
        ('{"weight_map": {"a": "x", "a": "y"}}', FindingCode.MALFORMED_METADATA),
        ('{"weight_map": {"a": "../x.safetensors"}}', FindingCode.PATH_ESCAPE),
        ('{"weight_map": {"a": "/x.safetensors"}}', FindingCode.PATH_ESCAPE),
    ],
)
def test_a_bad_index_is_an_error_and_opens_nothing_else(sharded: Path, text: str, code: FindingCode) -> None:
    (sharded / INDEX).write_text(text)
    (layout,) = open_folder(sharded)
    assert facts(layout) == [(code, Severity.ERROR)]
    assert [file.path for file in layout.metadata_files] == [INDEX]
    assert [shard.path for shard in layout.shards] == [FIRST, SECOND]


def test_other_index_names_are_indexes_too(tmp_path: Path) -> None:
    shard = "diffusion_pytorch_model-00001-of-00001.safetensors"
    write(tmp_path / shard, {"a": (1,)})
    index = tmp_path / "diffusion_pytorch_model.safetensors.index.fp16.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    (layout,) = open_folder(tmp_path)
    assert [file.path for file in layout.metadata_files] == [index.name]


def test_an_unreadable_header_leaves_a_shard_whose_bytes_can_still_be_hashed(sharded: Path) -> None:
    (sharded / SECOND).write_bytes(b"\0" * 100)
    (layout,) = open_folder(sharded)
    assert layout.shards[1].encoding is Encoding.OPAQUE
    assert (FindingCode.HEADER_MALFORMED, Severity.ERROR) in facts(layout)


def test_a_cut_in_the_data_is_told_once_by_the_exact_length(sharded: Path) -> None:
    whole = (sharded / SECOND).read_bytes()
    (sharded / SECOND).write_bytes(whole[:-1])
    (layout,) = open_folder(sharded)
    assert layout.findings == ()
    assert layout.shards[1].exact_length_bytes == len(whole)


def test_slices_of_ranks_become_one_tensor(tmp_path: Path) -> None:
    for rank, row in ((1, 0), (2, 3)):
        write(
            tmp_path / f"shard-0000{rank}-model-00001-of-00001.safetensors",
            {"w": (3, 2)} | ({"bias": (4,)} if rank == 1 else {}),
            offsets={"w": [row, 0], "bias": [0]},
        )
    (layout,) = open_folder(tmp_path)
    bias, w = layout.tensors
    assert w.shape == (6, 2)
    assert w.slices == (Slice((0, 0), (3, 2)), Slice((3, 0), (3, 2)))
    assert bias.shape == (4,)
    assert facts(layout) == [(FindingCode.RANK_LOCAL_METADATA, Severity.INFO)]


@pytest.mark.parametrize("offsets", [{}, {"w": [0]}, {"w": [-1, 0]}, {"w": "x"}])
def test_sharding_info_that_torchs_reader_refuses_is_malformed(
    tmp_path: Path, offsets: dict[str, list[int]]
) -> None:
    write(
        tmp_path / "shard-00001-model-00001-of-00001.safetensors",
        {"w": (3, 2)},
        offsets=offsets or {"other": []},
    )
    (layout,) = open_folder(tmp_path)
    assert (FindingCode.HEADER_MALFORMED, Severity.ERROR) in facts(layout)


def test_a_file_number_that_no_rank_wrote_is_in_doubt(tmp_path: Path) -> None:
    write(tmp_path / "shard-00001-model-00001-of-00002.safetensors", {"w": (1,)}, offsets={"w": [0]})
    (layout,) = open_folder(tmp_path)
    assert (FindingCode.MISSING_SHARD, Severity.UNKNOWN) in facts(layout)


def test_two_files_that_disagree_about_a_dtype_are_in_doubt(tmp_path: Path) -> None:
    for rank in (1, 2):
        write(
            tmp_path / f"shard-0000{rank}-model-00001-of-00001.safetensors",
            {"w": (1,)},
            offsets={"w": [rank - 1]},
        )
    second = tmp_path / "shard-00002-model-00001-of-00001.safetensors"
    second.write_bytes(second.read_bytes().replace(b'"F32"', b'"I32"'))
    (layout,) = open_folder(tmp_path)
    assert (FindingCode.DTYPE_MISMATCH, Severity.UNKNOWN) in facts(layout)


def test_two_variants_of_a_model_are_two_layouts(tmp_path: Path) -> None:
    for name in ("model.safetensors", "model.fp16.safetensors"):
        write(tmp_path / name, {"a": (1,)})
    assert [layout.shards[0].path for layout in open_folder(tmp_path)] == [
        "model.fp16.safetensors",
        "model.safetensors",
    ]


def test_a_shard_that_links_out_of_the_root_is_kept_and_not_opened(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    write(outside / "blob", {"a": (1,)})
    (inside / "model.safetensors").symlink_to(outside / "blob")
    (layout,) = open_folder(inside)
    assert [shard.path for shard in layout.shards] == ["model.safetensors"]
    assert layout.tensors == ()


def test_an_index_that_links_out_of_the_root_is_in_doubt(
    sharded: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "index.json"
    (sharded / INDEX).rename(outside)
    (sharded / INDEX).symlink_to(outside)
    (layout,) = open_folder(sharded)
    (finding,) = layout.findings
    assert (finding.code, finding.severity) == (FindingCode.PATH_ESCAPE, Severity.UNKNOWN)
    assert finding.check is CheckName.EXISTENCE


def test_more_tensors_than_the_limit_are_refused(sharded: Path) -> None:
    with pytest.raises(LimitExceededError):
        open_folder(sharded, Limits(max_items=2))


@pytest.mark.parametrize("name", ["model.pt", "__0_0.distcp", "model.safetensors.tmp", "._a.safetensors"])
def test_other_folders_are_not_recognised(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert not ADAPTER.recognises(listing_of(tmp_path)[1])

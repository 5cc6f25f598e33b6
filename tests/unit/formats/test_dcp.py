"""The adapter: every DCP checkpoint of the corpus opens, and says what its writer saved."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ckptguard.errors import LimitExceededError
from ckptguard.formats.dcp import ADAPTER
from ckptguard.formats.dcp_metadata import KNOWN_GLOBALS
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.layout import Encoding, ItemKind, Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore

FAULTLESS = "dcp_torch2_13_0_fsdp2_ws4"
SMALL = "dcp_torch2_13_0_shardedtensor_ws2"


def listing_of(folder: Path) -> Listing:
    return list_folder(LocalStore(folder), "", max_files=100_000)


def open_folder(folder: Path, limits: Limits | None = None) -> tuple[Layout, ...]:
    assert ADAPTER.recognises(listing_of(folder))
    return ADAPTER.open(LocalStore(folder), listing_of(folder), limits or Limits())


def dcp_folders(corpus: Path) -> list[Path]:
    marks = [*corpus.rglob(".metadata"), *corpus.rglob("__*.metadata")]
    return sorted({mark.parent for mark in marks})


@pytest.fixture
def copy(corpus_dir: Path, tmp_path: Path) -> Any:  # noqa: ANN401 - a function
    """Copy a checkpoint of the corpus, to be damaged."""

    def copy_named(name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(corpus_dir / name, target)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755)
        return target

    return copy_named


def test_every_checkpoint_of_the_corpus_opens_without_a_finding(corpus_dir: Path) -> None:
    folders = dcp_folders(corpus_dir)
    assert len(folders) >= 55
    for folder in folders:
        for layout in open_folder(folder):
            assert layout.findings == (), folder
            assert (layout.missing_items, layout.orphan_items) == ((), ()), folder
            assert layout.stock_globals <= KNOWN_GLOBALS, folder
            assert layout.tensors, folder


def test_every_item_fills_its_shard_to_the_byte(corpus_dir: Path) -> None:
    for folder in dcp_folders(corpus_dir):
        for shard in (shard for layout in open_folder(folder) for shard in layout.shards):
            ends = [item.offset + item.length_bytes for item in shard.items]
            starts = [item.offset for item in shard.items]
            if shard.encoding is Encoding.TORCH_ZIP_ITEMS:
                assert [*starts[1:], shard.min_length_bytes] == ends, (folder, shard.path)
            assert shard.min_length_bytes == (folder / shard.path).stat().st_size, (folder, shard.path)


def _expected(corpus: Path, name: str) -> dict[str, Any]:
    entries = json.loads((corpus / f"{name}.json").read_text())["expected"]
    return {entry["fqn"]: entry for entry in entries}


def test_names_shapes_and_dtypes_are_those_that_were_saved(corpus_dir: Path) -> None:
    seen = 0
    for folder in sorted(corpus_dir.glob("dcp_*")):
        if not folder.is_dir() or not (folder / ".metadata").is_file():
            continue
        expected = _expected(corpus_dir, folder.name)
        (layout,) = open_folder(folder)
        stored = {tensor.fqn: tensor for tensor in layout.tensors}
        for fqn, entry in expected.items():
            if entry["kind"] == "tensor":
                assert list(stored[fqn].shape) == entry["shape"], (folder, fqn)
                assert f"torch.{stored[fqn].dtype}" == entry["dtype"], (folder, fqn)
                seen += 1
        tensors = {fqn for fqn, entry in expected.items() if entry["kind"] == "tensor"}
        assert tensors == set(stored), folder
        # torch 2.3 kept the objects of one rank only, of those that all ranks had
        lost = set(expected) - tensors - set(layout.objects)
        assert set(layout.objects) <= set(expected), folder
        assert not lost or "torch2_3" in folder.name, (folder, lost)
    assert seen > 3000


def test_tensor_items_carry_dtype_and_slice_and_objects_do_not(corpus_dir: Path) -> None:
    (layout,) = open_folder(corpus_dir / FAULTLESS)
    tensors = {tensor.fqn: tensor for tensor in layout.tensors}
    for item in (item for shard in layout.shards for item in shard.items):
        if item.kind is ItemKind.TENSOR:
            assert item.dtype == tensors[item.fqn].dtype
            assert item.slice in tensors[item.fqn].slices
        else:
            assert (item.dtype, item.slice) == (None, None)
            assert item.fqn in layout.objects
    assert layout.save_id == "319e369a-9c9c-4af3-be06-525e4a758ef0"
    assert layout.metadata_files[0].length_bytes == 79103
    assert str(layout.metadata_files[0].checksum).startswith("xxh3-128:")


def test_items_in_safetensors_files_lie_where_the_header_says(corpus_dir: Path) -> None:
    folder = corpus_dir / "dcp_torch2_13_0_fswriter_safetensors_ws2"
    (layout,) = open_folder(folder)
    assert layout.stock_reader_gap is not None
    assert "safetensors" in layout.stock_reader_gap
    for shard in layout.shards:
        assert shard.encoding is Encoding.SAFETENSORS
        assert shard.exact_length_bytes == (folder / shard.path).stat().st_size
        assert shard.items[0].offset > 8


def test_rank_local_metadata_gives_one_layout_per_rank(corpus_dir: Path) -> None:
    layouts = open_folder(corpus_dir / "dcp_torch2_13_0_no_collectives_ws2")
    assert [layout.metadata_files[0].path for layout in layouts] == ["__0.metadata", "__1.metadata"]
    assert all(layout.is_rank_local for layout in layouts)
    assert [shard.path for layout in layouts for shard in layout.shards] == ["__0_0.distcp", "__1_0.distcp"]


def test_what_stock_cannot_open_is_said(corpus_dir: Path) -> None:
    (olmo,) = open_folder(corpus_dir / "olmo_core_ws2")
    assert olmo.stock_reader_gap is not None
    assert "olmo_core" in olmo.stock_reader_gap
    (plain,) = open_folder(corpus_dir / FAULTLESS)
    assert plain.stock_reader_gap is None


def test_old_key_layouts_and_transforms_are_noted(corpus_dir: Path) -> None:
    (old,) = open_folder(corpus_dir / "dcp_torch2_3_1_nodist")
    assert "before 2.4" in old.notes[0]
    (packed,) = open_folder(corpus_dir / "dcp_torch2_13_0_zstd_ws2")
    assert {item.transforms for shard in packed.shards for item in shard.items} == {("stream.zstd/1",)}


def test_megatron_sidecars_are_told(corpus_dir: Path) -> None:
    (layout,) = open_folder(corpus_dir / "megatron_tp_plain_ws2" / "iter_0000007")
    assert layout.sidecars == ("common.pt", "metadata.json")


def test_other_formats_are_not_recognised(corpus_dir: Path) -> None:
    for name in ("hf_save_pretrained", "dcp_torch2_13_0_hf_distributed_ws2", "orbax_pytree_zarr"):
        assert not ADAPTER.recognises(listing_of(corpus_dir / name))


def test_without_metadata_it_was_never_committed(copy: Any) -> None:  # noqa: ANN401
    folder = copy(SMALL)
    (folder / ".metadata").unlink()
    (layout,) = open_folder(folder)
    (finding,) = layout.findings
    assert finding.code is FindingCode.NOT_COMMITTED
    assert (finding.check, finding.basis) == (CheckName.EXISTENCE, Basis.DAMAGE)
    assert "2 shards present" in finding.message
    assert layout.shards == ()


def test_metadata_that_was_never_renamed_is_no_commit(copy: Any) -> None:  # noqa: ANN401
    folder = copy(SMALL)
    temporary = folder / ".metadata.tmp"
    (folder / ".metadata").rename(temporary)
    assert "complete .metadata.tmp present" in open_folder(folder)[0].findings[0].message
    temporary.write_bytes(temporary.read_bytes()[:-1])
    assert "incomplete .metadata.tmp present" in open_folder(folder)[0].findings[0].message


def test_one_nodes_part_is_warned_of(copy: Any) -> None:  # noqa: ANN401
    folder = copy(FAULTLESS)
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        (folder / name).unlink()
    error, warning = open_folder(folder)[0].findings
    assert error.severity is Severity.ERROR
    assert warning.severity is Severity.WARNING
    assert "one node's part" in warning.message


def test_metadata_behind_a_link_out_of_the_root_is_not_opened(copy: Any, tmp_path: Path) -> None:  # noqa: ANN401
    folder = copy(SMALL)
    outside = tmp_path / "outside"
    (folder / ".metadata").rename(outside)
    (folder / ".metadata").symlink_to(outside)
    (finding,) = open_folder(folder)[0].findings
    assert (finding.code, finding.severity) == (FindingCode.PATH_ESCAPE, Severity.UNKNOWN)


def test_junk_beside_good_metadata_is_not_looked_at(copy: Any) -> None:  # noqa: ANN401
    folder = copy(SMALL)
    (folder / ".metadata.tmp").write_bytes(b"junk")
    (folder / "._.metadata").write_bytes(b"junk")
    assert open_folder(folder)[0].findings == ()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (lambda _: b"", FindingCode.EMPTY_METADATA),
        (lambda data: data[: len(data) // 2], FindingCode.TRUNCATED_METADATA),
        (lambda data: bytes(len(data)), FindingCode.MALFORMED_METADATA),
        (lambda _: b"junk" * 100, FindingCode.MALFORMED_METADATA),
    ],
)
def test_damaged_metadata_is_a_finding(copy: Any, content: Any, code: FindingCode) -> None:  # noqa: ANN401
    folder = copy(SMALL)
    metadata = folder / ".metadata"
    metadata.write_bytes(content(metadata.read_bytes()))
    (finding,) = open_folder(folder)[0].findings
    assert (finding.code, finding.severity, finding.file) == (code, Severity.ERROR, ".metadata")


def test_metadata_beyond_the_limit_is_not_read(corpus_dir: Path) -> None:
    with pytest.raises(LimitExceededError):
        open_folder(corpus_dir / SMALL, Limits(max_metadata_bytes=100))


def test_safetensors_shards_with_another_header_are_damage(copy: Any) -> None:  # noqa: ANN401
    folder = copy("dcp_torch2_13_0_fswriter_safetensors_ws2")
    shard = folder / "__1_0.distcp"
    data = shard.read_bytes()
    for before, after, code in (
        (b'"tok_embeddings.weight":{"dtype"', b'"tok_embeddings.xxxxxx":{"dtype"', FindingCode.MISSING_ITEM),
        (b'"dtype":"F32","shape":[8]', b'"dtype":"I32","shape":[8]', FindingCode.DTYPE_MISMATCH),
        (b'"shape":[32,16]', b'"shape":[16,32]', FindingCode.SHAPE_MISMATCH),
    ):
        assert before in data
        shard.write_bytes(data.replace(before, after, 1))
        findings = open_folder(folder)[0].findings
        assert {finding.code for finding in findings} == {code}
        assert all(finding.basis is Basis.DAMAGE for finding in findings)
    shard.unlink()
    (layout,) = open_folder(folder)
    assert layout.findings == ()
    assert [each.encoding for each in layout.shards] == [Encoding.SAFETENSORS] * 2


def test_interrupted_saves_open(corpus_dir: Path) -> None:
    broken = corpus_dir.parent / "corpus_broken"
    (before,) = open_folder(broken / "dcp_killed_before_metadata")
    assert [finding.code for finding in before.findings] == [FindingCode.NOT_COMMITTED]
    (mixed,) = open_folder(broken / "dcp_killed_overwriting")
    assert mixed.findings == ()

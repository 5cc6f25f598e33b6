"""Metadata tables: every version's fields, every field of the wrong kind, hostile values."""

import copy
import pickle
import time
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from ckptguard.errors import LimitExceededError
from ckptguard.formats.dcp_metadata import KNOWN_GLOBALS, MetadataTables, read_metadata
from ckptguard.formats.pickle_reader import BUDGET_BASE_BYTES, BUDGET_PER_BYTE
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.layout import ItemKind, Slice
from ckptguard.model.policy import Limits

torch = pytest.importorskip("torch")
from torch.distributed.checkpoint import metadata as md  # noqa: E402 - after the skip
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402

pytestmark = pytest.mark.torch

Change = Callable[[Any], None]
INDEX = md.MetadataIndex("w", torch.Size((0, 0)), 0)
FIELDS = Path(__file__)


def make() -> Any:  # noqa: ANN401 - torch's Metadata
    """Return metadata of a tensor in two slices, an empty one, a scalar and an object."""
    properties = md.TensorProperties(dtype=torch.bfloat16)
    slices = [((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (0, 3))]
    chunks = [md.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in slices]
    scalar = md.ChunkStorageMetadata(torch.Size(()), torch.Size(()))
    stored = {
        md.MetadataIndex("w", torch.Size(offsets), at): _StorageInfo(f"__{at}_0.distcp", 0, 100 + at)
        for at, (offsets, _) in enumerate(slices)
    }
    stored[md.MetadataIndex("s", torch.Size(()), 0)] = _StorageInfo("__0_0.distcp", 100, 50)
    stored[md.MetadataIndex("o")] = _StorageInfo("__0_0.distcp", 150, 7, ["stream.zstd/1"])
    return md.Metadata(
        state_dict_metadata={
            "w": md.TensorStorageMetadata(properties, torch.Size((4, 3)), chunks),
            "s": md.TensorStorageMetadata(properties, torch.Size(()), [scalar]),
            "o": md.BytesStorageMetadata(),
        },
        planner_data={"w": ("w",), "s": ("s",), "o": ("o",)},
        storage_data=stored,
        storage_meta=md.StorageMeta(checkpoint_id=Path("/somewhere"), save_id="save-1"),
    )


def read(metadata: object, protocol: int = 4) -> MetadataTables:
    return read_metadata(pickle.dumps(metadata, protocol), file=".metadata", limits=Limits())


def read_changed(change: Change) -> MetadataTables:
    metadata = make()
    change(metadata)
    return read(metadata)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_fields_are_read_as_written_by_any_protocol(protocol: int) -> None:
    tables = read(make(), protocol)
    assert tables.findings == ()
    assert [(t.fqn, t.dtype, t.shape) for t in tables.tensors] == [
        ("s", "bfloat16", ()),
        ("w", "bfloat16", (4, 3)),
    ]
    assert tables.tensors[1].slices == (
        Slice((0, 0), (2, 3)),
        Slice((2, 0), (2, 3)),
        Slice((4, 0), (0, 3)),
    )
    assert tables.objects == ("o",)
    assert tables.save_id == "save-1"
    assert (tables.missing_items, tables.orphan_items) == ((), ())
    first, second, third = tables.shards
    assert (first.path, second.path, third.path) == ("__0_0.distcp", "__1_0.distcp", "__2_0.distcp")
    assert [item.fqn for item in first.items] == ["w", "s", "o"]
    assert first.min_length_bytes == 157
    assert first.items[2].kind is ItemKind.BYTES
    assert first.items[2].transforms == ("stream.zstd/1",)
    assert (second.items[0].dtype, second.items[0].slice) == ("bfloat16", Slice((2, 0), (2, 3)))
    assert tables.globals <= KNOWN_GLOBALS


def test_every_flavour_of_path_is_known() -> None:
    def move(metadata: Any) -> None:  # noqa: ANN401
        metadata.storage_meta.checkpoint_id = PureWindowsPath("C:/x")

    tables = read_changed(move)
    assert "pathlib.PureWindowsPath" in tables.globals | {g.replace("._local", "") for g in tables.globals}
    assert tables.globals <= KNOWN_GLOBALS


def test_older_metadata_lacks_fields() -> None:
    metadata = make()
    for name in ("storage_meta", "version"):
        delattr(metadata, name)
    assert read(metadata).findings == ()


def test_equal_sizes_are_one_value() -> None:
    metadata = make()
    for number in range(9):
        metadata.state_dict_metadata[f"w{number}"] = copy.deepcopy(metadata.state_dict_metadata["w"])
    tables = read_metadata(pickle.dumps(metadata), file="m", limits=Limits(), has_shortcuts=True)
    first, second = tables.tensors[-2:]
    assert first.slices[1].offsets is second.slices[1].offsets
    assert first.shape is second.shape


def _replace_stored(**fields: object) -> Change:
    def change(metadata: Any) -> None:  # noqa: ANN401
        for name, value in fields.items():
            setattr(metadata.storage_data[INDEX], name, value)

    return change


def _replace_tensor(**fields: object) -> Change:
    def change(metadata: Any) -> None:  # noqa: ANN401
        for name, value in fields.items():
            setattr(metadata.state_dict_metadata["w"], name, value)

    return change


def _replace_chunk(**fields: object) -> Change:
    def change(metadata: Any) -> None:  # noqa: ANN401
        for name, value in fields.items():
            setattr(metadata.state_dict_metadata["w"].chunks[0], name, value)

    return change


def _put(name: str, key: object, value: object) -> Change:
    return lambda metadata: getattr(metadata, name).__setitem__(key, value)


@pytest.mark.parametrize(
    "change",
    [
        _replace_tensor(size=None),
        _replace_tensor(size=(4, "3")),
        _replace_tensor(size=(4, -3)),
        _replace_tensor(size=(4, True)),
        _replace_tensor(size=(4, 2**63)),
        _replace_tensor(size=(1,) * 65),
        _replace_tensor(size=(4, 3, 1)),
        _replace_tensor(chunks=None),
        _replace_tensor(chunks=[1]),
        _replace_tensor(properties=None),
        _replace_tensor(properties="bfloat16"),
        _replace_chunk(offsets=(0,)),
        _replace_chunk(sizes=[2, 3]),
        _replace_chunk(sizes=((2, 3),)),
        _put("state_dict_metadata", 5, md.BytesStorageMetadata()),
        _put("state_dict_metadata", "\ud800", md.BytesStorageMetadata()),
        _put("state_dict_metadata", "x", "not an entry"),
        _put("storage_data", "key", _StorageInfo("__0_0.distcp", 0, 1)),
        _put("storage_data", md.MetadataIndex("w"), None),
        _put("storage_data", md.MetadataIndex(5), _StorageInfo("__0_0.distcp", 0, 1)),  # type: ignore[arg-type]
        _replace_stored(relative_path=None),
        _replace_stored(relative_path="\ud800"),
        _replace_stored(transform_descriptors="stream.zstd"),
        _replace_stored(transform_descriptors=["x"] * 17),
        lambda metadata: setattr(metadata, "storage_data", None),
        lambda metadata: setattr(metadata, "state_dict_metadata", []),
    ],
)
def test_a_field_of_the_wrong_kind_is_malformed_metadata(change: Change) -> None:
    tables = read_changed(change)
    assert {finding.code for finding in tables.findings} == {FindingCode.MALFORMED_METADATA}
    assert all(finding.severity is Severity.ERROR for finding in tables.findings)


def test_an_extent_that_no_file_has_is_out_of_bounds() -> None:
    for offset, length in (
        (-1, 5),
        (0, -5),
        (2**63, 1),
        (1, 2**63 - 1),
        (0.0, 1),
        (True, 1),
        (None, 1),
        (0, 2**9000),
    ):
        (finding,) = read_changed(_replace_stored(offset=offset, length=length)).findings
        assert finding.code is FindingCode.ITEM_OUT_OF_BOUNDS
        assert finding.basis is Basis.DAMAGE
        assert finding.fqn == "w"


def test_a_length_of_a_petabyte_is_only_a_number() -> None:
    tables = read_changed(_replace_stored(length=10**15))
    assert tables.findings == ()
    assert tables.shards[0].min_length_bytes == 10**15


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "a/../x",
        "/etc/passwd",
        "C:\\x",
        "c:x",
        "\\\\host\\x",
        "..\\x",
        "a\0b",
        "",
        ".",
        "x" * 5000,
    ],
)
def test_a_path_out_of_the_checkpoint_is_an_escape(path: str) -> None:
    tables = read_changed(_replace_stored(relative_path=path))
    (finding,) = tables.findings
    assert finding.code is FindingCode.PATH_ESCAPE
    assert (finding.check, finding.severity) == (CheckName.EXISTENCE, Severity.ERROR)
    assert all(".." not in shard.path and not shard.path.startswith("/") for shard in tables.shards)
    assert tables.missing_items == ()


@pytest.mark.parametrize("path", ["./x.distcp", "x.distcp/", ".//x.distcp", "x.distcp"])
def test_a_path_is_brought_to_its_plain_form(path: str) -> None:
    assert "x.distcp" in {shard.path for shard in read_changed(_replace_stored(relative_path=path)).shards}


def test_a_slice_without_an_entry_is_missing() -> None:
    tables = read_changed(lambda metadata: metadata.storage_data.pop(INDEX))
    assert tables.missing_items == (("w", Slice((0, 0), (2, 3))),)
    tables = read_changed(lambda metadata: metadata.storage_data.pop(md.MetadataIndex("o")))
    assert tables.missing_items == (("o", None),)


def test_an_entry_without_a_slice_is_an_orphan() -> None:
    tables = read_changed(lambda metadata: metadata.state_dict_metadata["w"].chunks.pop(0))
    (orphan,) = tables.orphan_items
    assert (orphan.fqn, orphan.slice) == ("w", None)
    assert orphan in tables.shards[0].items
    tables = read_changed(lambda metadata: metadata.state_dict_metadata.pop("w"))
    assert len(tables.orphan_items) == 3


def test_an_entry_without_a_corner_is_no_home_for_a_tensor() -> None:
    def drop_corner(metadata: Any) -> None:  # noqa: ANN401
        metadata.storage_data[md.MetadataIndex("s")] = metadata.storage_data.pop(
            md.MetadataIndex("s", torch.Size(()))
        )

    tables = read_changed(drop_corner)
    assert tables.missing_items == (("s", Slice((), ())),)
    assert [item.fqn for item in tables.orphan_items] == ["s"]


def test_an_empty_slice_shares_the_home_of_its_corner() -> None:
    def add_empty(metadata: Any) -> None:  # noqa: ANN401
        empty = md.ChunkStorageMetadata(torch.Size((0, 0)), torch.Size((0, 3)))
        metadata.state_dict_metadata["w"].chunks.insert(0, empty)

    tables = read_changed(add_empty)
    assert (tables.missing_items, tables.orphan_items) == ((), ())
    assert tables.shards[0].items[0].slice == Slice((0, 0), (2, 3))


def test_a_tensor_of_very_many_slices_finds_its_homes() -> None:
    metadata = make()
    sizes = [((row, 0), (1, 3)) for row in range(2000)]
    chunks = [md.ChunkStorageMetadata(torch.Size(offsets), torch.Size(each)) for offsets, each in sizes]
    metadata.state_dict_metadata = {
        "w": md.TensorStorageMetadata(md.TensorProperties(), torch.Size((2000, 3)), chunks)
    }
    metadata.storage_data = {
        md.MetadataIndex("w", torch.Size(offsets), row): _StorageInfo("f", row, 1)
        for row, (offsets, _) in enumerate(sizes)
        if row != 1234
    }
    for has_shortcuts in (False, True):
        data = pickle.dumps(metadata)
        tables = read_metadata(data, file="m", limits=Limits(), has_shortcuts=has_shortcuts)
        assert tables.missing_items == (("w", Slice((1234, 0), (1, 3))),)
        assert len(tables.shards[0].items) == 1999


def test_an_unknown_class_where_the_layout_is_described_is_in_doubt() -> None:
    for change in (
        _put("state_dict_metadata", "w", FIELDS),
        _put("storage_data", INDEX, FIELDS),
        _put("storage_data", FIELDS, _StorageInfo("f", 0, 1)),
        _replace_tensor(properties=FIELDS),
        _replace_tensor(chunks=[FIELDS]),
        lambda metadata: setattr(metadata, "storage_data", FIELDS),
    ):
        metadata = make()
        change(metadata)
        name = type(FIELDS).__name__.encode()
        data = pickle.dumps(metadata).replace(name, b"Z" * len(name)).replace(b"pathlib", b"newlibs")
        tables = read_metadata(data, file="m", limits=Limits())
        assert {(f.code, f.severity) for f in tables.findings} == {
            (FindingCode.UNKNOWN_GLOBAL, Severity.UNKNOWN)
        }
        assert tables.missing_items == ()
        assert tables.globals - KNOWN_GLOBALS


def test_a_whole_of_another_class_is_in_doubt_and_of_no_class_malformed() -> None:
    data = pickle.dumps(make()).replace(b"\x08Metadata", b"\x08MetaNext")
    (finding,) = read_metadata(data, file="m", limits=Limits()).findings
    assert finding.code is FindingCode.UNKNOWN_GLOBAL
    assert finding.observed == "torch.distributed.checkpoint.metadata.MetaNext"
    (finding,) = read({"a": 1}).findings
    assert finding.code is FindingCode.MALFORMED_METADATA


class RunsCommand:
    """Unpickled by pickle, it creates the marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        import os  # noqa: PLC0415 - what an attack names

        return os.system, (f"touch '{self.marker}'",)


def test_an_attack_in_the_planner_data_is_named_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    tables = read_changed(lambda metadata: setattr(metadata, "planner_data", RunsCommand(marker)))
    assert "posix.system" in tables.globals
    assert len(tables.tensors) == 2
    assert not marker.exists()


def test_an_attack_in_the_place_of_an_entry_is_unsafe(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for change in (
        _put("state_dict_metadata", "w", RunsCommand(marker)),
        _put("storage_data", INDEX, RunsCommand(marker)),
    ):
        findings = read_changed(change).findings
        assert {(f.code, f.basis) for f in findings} == {(FindingCode.UNSAFE_PICKLE, Basis.UNSAFE)}
    (finding,) = read(RunsCommand(marker)).findings
    assert finding.basis is Basis.UNSAFE
    assert not marker.exists()


def test_findings_of_one_kind_are_bounded_and_counted() -> None:
    metadata = make()
    for number in range(1000):
        metadata.storage_data[md.MetadataIndex(f"x{number}")] = _StorageInfo("../x", 0, 1)
    findings = read(metadata).findings
    assert len(findings) == 21
    assert "980 more" in findings[-1].message
    assert findings[-1].severity is Severity.ERROR


def test_more_items_than_the_limit_are_refused() -> None:
    with pytest.raises(LimitExceededError):
        read_metadata(pickle.dumps(make()), file="m", limits=Limits(max_items=3))


def test_damaged_files_say_how() -> None:
    data = pickle.dumps(make())
    for damaged, code, words in (
        (b"", FindingCode.EMPTY_METADATA, "0 bytes"),
        (data[: len(data) // 2], FindingCode.TRUNCATED_METADATA, f"truncated at byte {len(data) // 2}"),
        (data[:-1], FindingCode.TRUNCATED_METADATA, f"at least {len(data)} bytes"),
        (bytes(len(data)), FindingCode.MALFORMED_METADATA, "zero-filled"),
        (data[:500] + bytes(len(data) - 500), FindingCode.MALFORMED_METADATA, "zero-filled from byte"),
        (b"not a pickle", FindingCode.MALFORMED_METADATA, "malformed"),
    ):
        (finding,) = read_metadata(damaged, file="m", limits=Limits()).findings
        assert finding.code is code
        assert finding.check is CheckName.EXISTENCE
        assert words in f"{finding.message} {finding.expected}"
    (finding,) = read_metadata(data + bytes(100), file="m", limits=Limits()).findings
    assert finding.severity is Severity.WARNING
    assert finding.offset == len(data)


def test_every_prefix_is_truncated() -> None:
    data = pickle.dumps(make())
    for end in range(1, len(data)):
        (finding,) = read_metadata(data[:end], file="m", limits=Limits()).findings
        assert finding.code is FindingCode.TRUNCATED_METADATA


def test_dense_metadata_fits_the_memory_allowed_even_without_shortcuts() -> None:
    metadata = make()
    chunks = [md.ChunkStorageMetadata(torch.Size((row, 0)), torch.Size((1, 3))) for row in range(50_000)]
    metadata.state_dict_metadata["w"] = md.TensorStorageMetadata(
        md.TensorProperties(), torch.Size((50_000, 3)), chunks
    )
    data = pickle.dumps(metadata)
    assert len(data) * BUDGET_PER_BYTE > BUDGET_BASE_BYTES
    tables = read_metadata(data, file="m", limits=Limits(), has_shortcuts=False)
    assert len(tables.tensors[1].slices) == 50_000


def test_offsets_that_hash_alike_do_not_cost_quadratic_time() -> None:
    metadata = make()
    rows = [(2**61 - 1) * n for n in range(4)]
    corners = [
        (a, b, c, d, e, f) for a in rows for b in rows for c in rows for d in rows for e in rows for f in rows
    ]
    chunks = [md.ChunkStorageMetadata(torch.Size(corner), torch.Size((1,) * 6)) for corner in corners]
    metadata.state_dict_metadata = {
        "w": md.TensorStorageMetadata(md.TensorProperties(), torch.Size((2**62,) * 6), chunks)
    }
    metadata.storage_data = {
        md.MetadataIndex("w", torch.Size((n, 0, 0, 0, 0, 0))): _StorageInfo("f", n, 1) for n in range(4000)
    }
    data = pickle.dumps(metadata)
    started = time.process_time()
    read_metadata(data, file="m", limits=Limits())
    assert time.process_time() - started < 10

"""Check 3, items: declared and not stored, stored and not declared, sharing bytes, too short."""

import pytest

from ckptguard.checks.coverage import check_coverage
from ckptguard.checks.items import ITEMSIZE_BYTES
from ckptguard.model.finding import Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard, Slice, Tensor

WHOLE = Slice((0,), (4,))
TENSOR = Tensor("w", "float32", (4,), (WHOLE,))


def _item(
    fqn: str, offset: int, length_bytes: int, part: Slice | None = None, dtype: str | None = None
) -> Item:
    kind = ItemKind.BYTES if part is None else ItemKind.TENSOR
    return Item(fqn, kind, offset, length_bytes, dtype, part)


def _shard(*items: Item, encoding: Encoding = Encoding.TORCH_ZIP_ITEMS, path: str = "__0_0.distcp") -> Shard:
    return Shard(path=path, encoding=encoding, items=items, min_length_bytes=0)


def _kinds(findings: tuple[Finding, ...]) -> list[tuple[FindingCode, Severity]]:
    return [(finding.code, finding.severity) for finding in findings]


def test_a_declared_slice_without_a_home_is_an_error() -> None:
    (finding,) = check_coverage([Layout(format="dcp", tensors=(TENSOR,), missing_items=(("w", WHOLE),))])
    assert (finding.code, finding.severity) == (FindingCode.MISSING_ITEM, Severity.ERROR)
    assert (finding.fqn, finding.slice_offsets) == ("w", (0,))


def test_a_declared_object_without_a_home_is_an_error() -> None:
    (finding,) = check_coverage([Layout(format="dcp", objects=("step",), missing_items=(("step", None),))])
    assert (finding.code, finding.severity) == (FindingCode.MISSING_ITEM, Severity.ERROR)


def test_an_empty_slice_at_the_edge_without_a_home_is_never_read() -> None:
    edge = Slice((4,), (0,))
    tensor = Tensor("w", "float32", (4,), (WHOLE, edge))
    (finding,) = check_coverage([Layout(format="dcp", tensors=(tensor,), missing_items=(("w", edge),))])
    assert (finding.code, finding.severity) == (FindingCode.MISSING_ITEM, Severity.WARNING)


def test_an_empty_slice_strictly_inside_is_read_by_torch_and_so_an_error() -> None:
    inner = Slice((2,), (0,))
    tensor = Tensor("w", "float32", (4,), (WHOLE, inner))
    (finding,) = check_coverage([Layout(format="dcp", tensors=(tensor,), missing_items=(("w", inner),))])
    assert finding.severity is Severity.ERROR


def test_an_orphan_in_a_declared_tensor_is_an_error_and_names_its_file() -> None:
    orphan = _item("w", 100, 50, Slice((2,), (2,)))
    layout = Layout(format="dcp", tensors=(TENSOR,), shards=(_shard(orphan),), orphan_items=(orphan,))
    (finding,) = check_coverage([layout])
    assert (finding.code, finding.severity) == (FindingCode.ORPHAN_ITEM, Severity.ERROR)
    assert (finding.file, finding.offset, finding.length_bytes) == ("__0_0.distcp", 100, 50)


def test_an_orphan_of_an_undeclared_name_is_an_error_too() -> None:
    orphan = _item("optim.w", 100, 50)
    (finding,) = check_coverage([Layout(format="dcp", tensors=(TENSOR,), orphan_items=(orphan,))])
    assert (finding.code, finding.severity) == (FindingCode.ORPHAN_ITEM, Severity.ERROR)


def test_items_that_share_bytes_are_a_warning() -> None:
    shard = _shard(_item("a", 0, 100), _item("b", 90, 100))
    (finding,) = check_coverage([Layout(format="dcp", shards=(shard,))])
    assert (finding.code, finding.severity) == (FindingCode.ITEM_OVERLAP, Severity.WARNING)
    assert finding.message.startswith("a and b share bytes of __0_0.distcp at 90")


def test_two_names_for_the_same_bytes_are_a_warning() -> None:
    shard = _shard(_item("a", 0, 100), _item("b", 0, 100))
    (finding,) = check_coverage([Layout(format="dcp", shards=(shard,))])
    assert "are the same bytes" in finding.message


def test_an_item_inside_a_longer_one_does_not_hide_the_next_overlap() -> None:
    shard = _shard(_item("long", 0, 100), _item("in", 10, 30), _item("late", 50, 100))
    findings = check_coverage([Layout(format="dcp", shards=(shard,))])
    assert [finding.fqn for finding in findings] == ["in", "late"]


def test_neighbours_do_not_overlap() -> None:
    shard = _shard(_item("a", 0, 100), _item("b", 100, 100))
    assert check_coverage([Layout(format="dcp", shards=(shard,))]) == ()


@pytest.mark.parametrize("encoding", [Encoding.SAFETENSORS, Encoding.TORCH_SAVE, Encoding.OPAQUE])
def test_other_encodings_may_share_bytes_and_be_short(encoding: Encoding) -> None:
    shard = _shard(_item("a", 0, 8), _item("b", 0, 8), encoding=encoding)
    assert check_coverage([Layout(format="dcp", shards=(shard,))]) == ()


def test_a_slice_stored_twice_is_a_warning_that_names_both_places() -> None:
    one, other = (
        _shard(_item("a", 0, 100), path="__0_0.distcp"),
        _shard(_item("a", 0, 100), path="__1_0.distcp"),
    )
    (finding,) = check_coverage([Layout(format="dcp", shards=(one, other))])
    assert finding.message == (
        "a is stored twice, in __0_0.distcp at 0 and in __1_0.distcp at 0; a load reads one of them"
    )


def test_an_extent_that_cannot_hold_a_zip_is_an_error() -> None:
    findings = check_coverage([Layout(format="dcp", shards=(_shard(_item("a", 0, 21)),))])
    assert _kinds(findings) == [(FindingCode.ITEM_OUT_OF_BOUNDS, Severity.ERROR)]


def test_an_extent_below_its_elements_is_a_doubt_because_subclasses_store_less() -> None:
    tensor = Tensor("w", "bfloat16", (4096,), (Slice((0,), (4096,)),))
    item = _item("w", 0, 5000, tensor.slices[0], "bfloat16")
    findings = check_coverage([Layout(format="dcp", tensors=(tensor,), shards=(_shard(item),))])
    assert _kinds(findings) == [(FindingCode.ITEM_OUT_OF_BOUNDS, Severity.UNKNOWN)]
    assert findings[0].expected == "at least 8192 bytes"


def test_nothing_is_claimed_about_unknown_dtypes_and_transformed_items() -> None:
    part = Slice((0,), (4096,))
    quantised = _item("a", 0, 1000, part, "quint4x2")
    packed = Item("b", ItemKind.TENSOR, 1000, 20, "float32", part, ("stream.zstd/1",))
    layout = Layout(format="dcp", shards=(_shard(quantised, packed),))
    assert check_coverage([layout]) == ()


@pytest.mark.torch
def test_item_sizes_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    assert {name: getattr(torch, name).itemsize for name in ITEMSIZE_BYTES} == dict(ITEMSIZE_BYTES)

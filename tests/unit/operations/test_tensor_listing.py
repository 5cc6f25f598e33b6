"""From layouts to the list of tensors."""

from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard, Slice, Tensor
from ckptguard.model.report import TensorNumerics
from ckptguard.model.tensor_list import MAX_FILES_NAMED, TensorEntry, lines_of, parse_line
from ckptguard.operations.tensor_listing import list_tensors

WHOLE = Slice((0,), (4,))
MEASURED = TensorNumerics(-1.0, 2.0, True, False, False)  # noqa: FBT003 - as its fields come


def shard(path: str, *fqns: str, kind: ItemKind = ItemKind.TENSOR) -> Shard:
    items = tuple(Item(fqn, kind, 10 * at, 10) for at, fqn in enumerate(fqns))
    return Shard(path=path, encoding=Encoding.TORCH_ZIP_ITEMS, items=items, min_length_bytes=100)


def tensor(fqn: str, *, slices: int = 1, shape: tuple[int, ...] = (4,)) -> Tensor:
    return Tensor(fqn, "float32", shape, (WHOLE,) * slices)


def listed(*layouts: Layout) -> list[TensorEntry]:
    return [parse_line(line) for line in lines_of(list_tensors(layouts, {"a": MEASURED}))]


def test_a_tensor_has_all_its_slices_bytes_and_files() -> None:
    layout = Layout(
        format="dcp",
        shards=(shard("__0_0.distcp", "a", "b"), shard("__1_0.distcp", "a", "a")),
        tensors=(tensor("a", slices=3), tensor("b")),
    )
    a, b = listed(layout)
    assert a == TensorEntry("a", "", "float32", (4,), 3, 30, 2, ("__0_0.distcp", "__1_0.distcp"), MEASURED)
    assert (b.fqn, b.length_bytes, b.num_files, b.numerics) == ("b", 10, 1, None)


def test_objects_are_no_tensors() -> None:
    layout = Layout(format="dcp", shards=(shard("f", "rng", kind=ItemKind.BYTES),), objects=("rng",))
    assert listed(layout) == []


def test_ranks_that_describe_one_tensor_make_one_entry() -> None:
    layouts = [
        Layout(
            format="dcp",
            is_rank_local=True,
            shards=(shard(f"__{rank}_0.distcp", "a"),),
            tensors=(tensor("a"),),
        )
        for rank in (0, 1)
    ]
    (entry,) = listed(*layouts)
    assert (entry.num_slices, entry.num_files, entry.length_bytes) == (2, 2, 20)


def test_tensors_of_one_name_in_two_parts_are_two() -> None:
    parts = [
        Layout(format="dcp", part=part, shards=(shard(f"{part}/f", "a"),), tensors=(tensor("a"),))
        for part in ("model", "optim")
    ]
    assert [(entry.part, entry.files) for entry in listed(*parts)] == [
        ("model", ("model/f",)),
        ("optim", ("optim/f",)),
    ]


def test_of_many_files_the_first_are_named_and_all_are_counted() -> None:
    shards = tuple(shard(f"f{number:03}", "a") for number in range(100))
    (entry,) = listed(Layout(format="dcp", shards=shards, tensors=(tensor("a", slices=100),)))
    assert entry.num_files == 100
    assert entry.files == tuple(f"f{number:03}" for number in range(MAX_FILES_NAMED))

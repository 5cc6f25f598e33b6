"""What is read from a `data.pkl`, and how it is held against the metadata."""

import collections
import io
import pickle

import pytest
import torch

from ckptguard.errors import FormatError
from ckptguard.formats.protocol import Problem, StoredTensor
from ckptguard.formats.torch_dtypes import ITEMSIZES, STORAGE_DTYPES
from ckptguard.formats.torch_item_pickle import (
    StoredStorage,
    compare_with_metadata,
    dtype_bits,
    find_pickle_end,
    named_tensors,
    read_item_pickle,
)
from ckptguard.model.finding import FindingCode
from ckptguard.model.layout import Item, ItemKind, Slice

STORED = StoredTensor(
    dtype="float32", sizes=(2, 3), stride=(3, 1), storage_offset=0, storage_key="0", storage_bytes=24
)


def item(dtype: str = "float32", sizes: tuple[int, ...] = (2, 3)) -> Item:
    return Item("w", ItemKind.TENSOR, 0, 1000, dtype, Slice((0,) * len(sizes), sizes))


def pickle_of(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return bytes(torch._C.PyTorchFileReader(io.BytesIO(buffer.getvalue())).get_record("data.pkl"))


@pytest.mark.torch
def test_every_dtype_of_torch_has_its_size() -> None:
    for dtype in {value for value in vars(torch).values() if isinstance(value, torch.dtype)}:
        assert ITEMSIZES[str(dtype).removeprefix("torch.")] == dtype.itemsize


@pytest.mark.torch
def test_every_storage_class_of_torch_has_its_dtype() -> None:
    for dtype, name in torch.storage._dtype_to_storage_type_map().items():
        assert STORAGE_DTYPES[name] == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 16), ("float8_e4m3fn", 8), ("", 0), ("float3", 0)])
def test_bits_of_a_dtype(dtype: str, bits: int) -> None:
    assert dtype_bits(dtype) == bits


@pytest.mark.torch
def test_a_dict_of_tensors_names_them_and_their_storages() -> None:
    base = torch.arange(12.0)
    value = collections.OrderedDict(
        w=base[2:8].view(2, 3), state={"step": torch.tensor(3), "lr": 0.1}, parts=[base, torch.ones(1).bool()]
    )
    read = read_item_pickle(pickle_of(value))
    assert read.tensor is None
    assert read.storages == {
        "0": StoredStorage("float32", 48, 4),
        "1": StoredStorage("int64", 8, 8),
        "2": StoredStorage("bool", 1, 1),
    }
    tensors = dict(named_tensors(read.value))
    assert list(tensors) == ["w", "state.step", "parts.0", "parts.1"]
    assert tensors["w"] == STORED._replace(storage_offset=2, storage_bytes=48)


@pytest.mark.torch
def test_a_tensor_subclass_and_a_tensor_with_attributes_are_tensors() -> None:
    marked = torch.ones(2)
    marked.kind = "expert"  # type: ignore[attr-defined]
    read = read_item_pickle(pickle_of({"p": torch.nn.Parameter(torch.ones(3)), "m": marked}))
    tensors = dict(named_tensors(read.value))
    assert tensors["p"].requires_grad
    assert tensors["m"].sizes == (2,)


@pytest.mark.torch
def test_a_sparse_tensor_is_an_object_whose_storages_are_known() -> None:
    read = read_item_pickle(pickle_of(torch.eye(3).to_sparse()))
    assert read.tensor is None
    assert len(read.storages) == 2


@pytest.mark.torch
def test_a_value_that_holds_itself_is_walked_once() -> None:
    value: dict[str, object] = {"w": torch.ones(1)}
    value["self"] = value
    assert [path for path, _ in named_tensors(read_item_pickle(pickle_of(value)).value)] == ["w"]


@pytest.mark.parametrize(
    "persistent_id",
    [b"X\x07\x00\x00\x00storage", b"(X\x05\x00\x00\x00otherK\x01t", b"N"],
)
def test_a_persistent_id_that_is_no_storage_is_refused(persistent_id: bytes) -> None:
    with pytest.raises(FormatError, match="storage"):
        read_item_pickle(b"\x80\x02" + persistent_id + b"Q.")


@pytest.mark.torch
def test_a_storage_of_two_lengths_is_refused() -> None:
    content = pickle_of([torch.arange(4.0)[:2], torch.arange(4.0)])
    assert content.count(b"X\x01\x00\x00\x001") == 1
    with pytest.raises(FormatError, match="twice"):
        read_item_pickle(
            content.replace(b"X\x01\x00\x00\x001", b"X\x01\x00\x00\x000").replace(b"K\x04tq", b"K\x05tq", 1)
        )


def test_the_end_of_a_pickle_is_found_without_its_descriptor() -> None:
    content = pickle.dumps({"a": [1, 2.5, "x" * 300]})
    assert find_pickle_end(content + b"PK whatever follows") == len(content)
    assert find_pickle_end(content[:-1]) is None
    assert find_pickle_end(b"\xff") is None


def test_a_tensor_that_agrees_has_no_problem() -> None:
    assert compare_with_metadata(item(), STORED) == []


def test_a_strided_tensor_inside_its_storage_has_no_problem() -> None:
    strided = STORED._replace(stride=(1, 4), storage_offset=3, storage_bytes=52)
    assert compare_with_metadata(item(), strided) == []
    assert only(compare_with_metadata(item(), strided._replace(storage_bytes=51))).code is (
        FindingCode.SHAPE_MISMATCH
    )


def test_scalars_and_empty_tensors_have_no_problem() -> None:
    scalar = STORED._replace(sizes=(), stride=(), storage_bytes=4)
    assert compare_with_metadata(item(sizes=()), scalar) == []
    empty = STORED._replace(sizes=(0, 3), storage_bytes=0, storage_offset=5)
    assert compare_with_metadata(item(sizes=(0, 3)), empty) == []


def test_other_dtype_and_sizes_are_named() -> None:
    problems = compare_with_metadata(item("bfloat16", (3, 2)), STORED)
    assert [(problem.code, problem.expected, problem.observed) for problem in problems] == [
        (FindingCode.DTYPE_MISMATCH, "bfloat16", "float32"),
        (FindingCode.SHAPE_MISMATCH, "[3, 2]", "[2, 3]"),
    ]


def test_a_tensor_that_reaches_beyond_its_storage_is_named() -> None:
    problem = only(compare_with_metadata(item(), STORED._replace(storage_offset=1)))
    assert (problem.code, problem.record) == (FindingCode.SHAPE_MISMATCH, "data/0")
    assert problem.expected == "at least 28 bytes"


def only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1
    return problems[0]

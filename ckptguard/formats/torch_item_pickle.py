"""What `data.pkl` of a torch.save zip says: which storages there are, and which tensors view them.

The objects themselves are not built. Storages are found wherever the pickle names
them, by persistent id; tensors where torch's own rebuild functions are called.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from ckptguard.errors import FormatError, LimitExceededError
from ckptguard.formats.pickle_reader import Builder, Constant, GlobalRef, Opaque, read_pickle
from ckptguard.formats.protocol import Problem, StoredTensor
from ckptguard.formats.torch_dtypes import ITEMSIZES, STORAGE_DTYPES
from ckptguard.model.finding import FindingCode
from ckptguard.model.layout import Item

MAX_NAMED_TENSORS: Final = 1_000_000
MAX_STORAGES: Final = 1_000_000
_TOO_LARGE: Final = 1 << 63
"""torch counts in int64; beyond, Python refuses to print numbers of some thousand digits."""
_MAX_KEY_CHARS: Final = 1000
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_DIMS: Final = 64  # torch's own limit: c10/core/TensorImpl.h
_MAX_SCANNED_PICKLE_BYTES: Final = 1 << 20


class StoredStorage(NamedTuple):
    """A storage as the pickle counts it.

    Args:
        dtype: Of its elements; `uint8` where it is untyped.
        length_bytes: Of its whole elements.
        itemsize: Bytes per element.
    """

    dtype: str
    length_bytes: int
    itemsize: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPickle:
    """A `data.pkl`, read.

    Args:
        storages: By key, in the order named; record `data/KEY` holds each.
        tensor: The value, where it is one tensor.
        value: The outermost value (see `named_tensors`).
        globals: `module.name` of everything that unpickling would name.
    """

    storages: Mapping[str, StoredStorage]
    tensor: StoredTensor | None
    value: object
    globals: frozenset[str]


class Dtype(NamedTuple):
    """A dtype named in a pickle."""

    name: str


class _StorageRef(NamedTuple):
    key: str
    storage: StoredStorage


def read_item_pickle(content: bytes) -> ItemPickle:
    """Read a `data.pkl`.

    Raises:
        FormatError: It is no pickle, or its storages cannot be those of a torch.save file.
        LimitExceededError: Its values would take far more memory than a real one.
    """
    storages: dict[str, StoredStorage] = {}

    def load_storage(persistent_id: object) -> object:
        ref = _read_storage(persistent_id)
        if storages.setdefault(ref.key, ref.storage) != ref.storage:
            msg = f"storage {ref.key!r} is named twice with different lengths"
            raise ValueError(msg)
        if len(storages) > MAX_STORAGES:
            msg = f"more than {MAX_STORAGES} storages"
            raise LimitExceededError(msg)
        return ref

    reading = read_pickle(content, builders=_BUILDERS, persistent_load=load_storage)
    tensor = reading.value if isinstance(reading.value, StoredTensor) else None
    return ItemPickle(storages=storages, tensor=tensor, value=reading.value, globals=reading.globals)


def find_pickle_end(buffer: bytes) -> int | None:
    """Return where a pickle at the start of `buffer` stops; None if it does not.

    For pickles whose descriptor was destroyed: what follows then is located all the same.
    """
    try:
        reading = read_pickle(buffer[:_MAX_SCANNED_PICKLE_BYTES], builders={}, persistent_load=lambda _: None)
    except FormatError:
        return None
    return reading.length_bytes


def named_tensors(value: object) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the tensors in nested dicts, lists and tuples, with their dotted paths.

    Bounded: `MAX_NAMED_TENSORS` tensors, and each container once.
    """
    seen: set[int] = set()
    pending: list[tuple[str, object]] = [("", value)]
    found = 0
    while pending and found < MAX_NAMED_TENSORS:
        path, node = pending.pop()
        if isinstance(node, StoredTensor):
            found += 1
            yield path, node
        elif isinstance(node, dict | list | tuple) and id(node) not in seen:
            seen.add(id(node))
            pairs = node.items() if isinstance(node, dict) else enumerate(node)
            head = f"{path}." if path else ""
            pending.extend(reversed([(f"{head}{key}", child) for key, child in pairs]))


def dtype_bits(dtype: str) -> int:
    """Return the bits per stored element of a torch dtype; 0 for a name that we do not know."""
    return 8 * ITEMSIZES.get(dtype, 0)


def compare_with_metadata(item: Item, stored: StoredTensor) -> list[Problem]:
    """Hold a stored tensor against what the metadata says of its item (cases.md M5).

    Strides may be any that stay inside the storage: DCP stores non-contiguous tensors
    as they are.
    """
    problems = []
    if item.dtype is not None and item.dtype != stored.dtype:
        problems.append(
            Problem(
                FindingCode.DTYPE_MISMATCH,
                "stored dtype differs from the metadata",
                expected=item.dtype,
                observed=stored.dtype,
            )
        )
    if item.slice is not None and item.slice.sizes != stored.sizes:
        problems.append(
            Problem(
                FindingCode.SHAPE_MISMATCH,
                "stored sizes differ from the metadata",
                expected=str(list(item.slice.sizes)),
                observed=str(list(stored.sizes)),
            )
        )
    needed = _needed_bytes(stored)
    if needed > stored.storage_bytes:
        problems.append(
            Problem(
                FindingCode.SHAPE_MISMATCH,
                "the stored tensor reaches beyond its storage",
                record=f"data/{stored.storage_key}",
                expected=f"at least {needed} bytes",
                observed=f"{stored.storage_bytes} bytes",
            )
        )
    return problems


def _needed_bytes(stored: StoredTensor) -> int:
    if not prod(stored.sizes):
        return 0
    reach = sum((size - 1) * step for size, step in zip(stored.sizes, stored.stride, strict=True))
    return (stored.storage_offset + reach + 1) * ITEMSIZES.get(stored.dtype, 1)


# -- values that torch's pickles are made of


def _read_storage(persistent_id: object) -> _StorageRef:
    """Read `("storage", class, key, location, elements)`; source: torch/serialization.py `_save`."""
    match persistent_id:
        case ("storage", GlobalRef() as kind, str(key), str(), int(count)) if count >= 0:
            dtype = STORAGE_DTYPES.get(kind.name.rsplit(".", 1)[-1])
        case _:
            dtype = None
    itemsize = ITEMSIZES[dtype] if dtype is not None else 0
    if dtype is None or not _is_record_name(key) or count * itemsize >= _TOO_LARGE:
        msg = "a persistent id is not one of a torch storage"
        raise ValueError(msg)
    return _StorageRef(key, StoredStorage(dtype, count * itemsize, itemsize))


def _is_record_name(key: str) -> bool:
    """Say whether a record can be called so; pickles may hold lone surrogates, which no zip can."""
    return bool(key) and len(key) <= _MAX_KEY_CHARS and (key.isascii() or not _SURROGATE.search(key))


def _rebuild_v2(args: tuple[object, ...]) -> object:
    """`(storage, offset, size, stride, requires_grad, hooks[, metadata])`; torch/_utils.py."""
    match args:
        case (_StorageRef() as ref, int(offset), tuple(sizes), tuple(stride), bool(has_grad), *_):
            return _tensor(ref, ref.storage.dtype, offset, sizes, stride, requires_grad=has_grad)
    return _unread_tensor()


def _rebuild_v3(args: tuple[object, ...]) -> object:
    """As v2 with an untyped storage: `(…, requires_grad, hooks, dtype[, metadata])`."""
    match args:
        case (
            _StorageRef() as ref,
            int(offset),
            tuple(sizes),
            tuple(stride),
            bool(has_grad),
            _,
            Dtype(name),
            *_,
        ):
            return _tensor(ref, name, offset, sizes, stride, requires_grad=has_grad)
    return _unread_tensor()


def _rebuild_quantized(args: tuple[object, ...]) -> object:
    """`(storage, offset, size, stride, quantizer, requires_grad, hooks)`."""
    match args:
        case (_StorageRef() as ref, int(offset), tuple(sizes), tuple(stride), _, bool(has_grad), *_):
            return _tensor(ref, ref.storage.dtype, offset, sizes, stride, requires_grad=has_grad)
    return _unread_tensor()


def _rebuild_parameter(args: tuple[object, ...]) -> object:
    """`(tensor, requires_grad, hooks[, state])`."""
    match args:
        case (StoredTensor() as tensor, bool(has_grad), *_):
            return tensor._replace(requires_grad=has_grad)
    return _unread_tensor()


def _rebuild_from_type(args: tuple[object, ...]) -> object:
    """`(function, class, its arguments, state)`: a tensor subclass, or a tensor with attributes."""
    match args:
        case (GlobalRef(builder=Builder() as builder), _, tuple(inner), *_):
            return builder.make(inner)
    return _unread_tensor()


def _tensor(
    ref: _StorageRef,
    dtype: str,
    offset: int,
    sizes: tuple[object, ...],
    stride: tuple[object, ...],
    *,
    requires_grad: bool,
) -> object:
    is_too_deep = len(sizes) > _MAX_DIMS or len(sizes) != len(stride)
    if is_too_deep or not _are_counts((int(offset), *sizes, *stride)):
        return _unread_tensor()
    return StoredTensor(
        dtype=dtype,
        sizes=sizes,  # type: ignore[arg-type]  # _are_counts looked at each
        stride=stride,  # type: ignore[arg-type]
        storage_offset=offset,
        storage_key=ref.key,
        storage_bytes=ref.storage.length_bytes,
        requires_grad=requires_grad,
    )


def _are_counts(numbers: tuple[object, ...]) -> bool:
    return all(type(number) is int and 0 <= number < _TOO_LARGE for number in numbers)


def _make_size(args: tuple[object, ...]) -> object:
    return args[0] if args and isinstance(args[0], tuple) else ()


def _unread_tensor() -> Opaque:
    """Stand for a tensor whose arguments are none that we read; its storage is verified all the same."""
    return Opaque(GlobalRef("torch", "Tensor"), ())


_BUILDERS: Final[dict[str, Builder | Constant]] = {
    "collections.OrderedDict": Builder(lambda _: {}),
    "torch.Size": Builder(_make_size),
    "torch._utils._rebuild_tensor_v2": Builder(_rebuild_v2),
    "torch._utils._rebuild_tensor_v3": Builder(_rebuild_v3),
    "torch._utils._rebuild_qtensor": Builder(_rebuild_quantized),
    "torch._utils._rebuild_parameter": Builder(_rebuild_parameter),
    "torch._utils._rebuild_parameter_with_state": Builder(_rebuild_parameter),
    "torch._tensor._rebuild_from_type_v2": Builder(_rebuild_from_type),
    **{f"torch.{name}": Constant(Dtype(name)) for name in ITEMSIZES},
}

HARMLESS_GLOBALS: Final = (
    frozenset(_BUILDERS)
    | {
        f"{module}.{name}"
        for module in ("builtins", "__builtin__")
        for name in ("set", "frozenset", "complex", "bytearray", "slice", "range")
    }
    | {f"torch.{name}" for name in STORAGE_DTYPES if name.endswith("Storage")}
    | {"torch.storage.UntypedStorage", "torch.storage.TypedStorage", "torch.storage._LegacyStorage"}
    | {"torch.Tensor", "torch.serialization._get_layout"}
    | {"_codecs.encode", "collections.Counter", "collections.deque", "torch.device"}
)
"""What plain torch values and plain containers are made of: naming these is no remark.

Source: torch 2.13 _weights_only_unpickler.py `_get_allowed_globals`, and the containers that
pickle writes by name in protocol 2.
"""

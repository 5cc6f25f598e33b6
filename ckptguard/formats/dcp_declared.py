"""What a checkpoint declares to hold: `state_dict_metadata`, judged field by field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from ckptguard.formats.dcp_findings import FindingBag, malformed, shown, unknown_class
from ckptguard.formats.dcp_values import BytesEntry, Chunk, Dtype, Properties, TensorEntry
from ckptguard.formats.pickle_reader import GlobalRef, Opaque
from ckptguard.model.finding import Finding
from ckptguard.model.layout import Slice, Tensor

MAX_DIMS: Final = 64
"""More than any torch tensor can have in a checkpoint; c10 caps most operators there."""

_TOO_LARGE: Final = 1 << 63


class _RefusedError(Exception):
    """A field is not of the right kind; the argument says which."""


class _UnknownClassError(Exception):
    """A field is of a class that nobody here knows; the argument is its name."""


@dataclass(slots=True)
class Declared:
    """Tensors and objects by FQN, and the names whose entries could not be understood."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)


def read_declared(entries: Mapping[object, object], *, file: str, bag: FindingBag) -> Declared:
    """Judge every entry of `state_dict_metadata`.

    Args:
        entries: By FQN, as pickled; any type may stand anywhere.
        file: The metadata file, for findings.
        bag: Takes `malformed_metadata` and `unknown_global`.
    """
    declared = Declared()
    read = _TensorReader()
    for fqn, entry in entries.items():
        if not is_name(fqn):
            bag.add(malformed(file, f"the name of an entry is {shown(fqn)}"))
        elif type(entry) is TensorEntry:
            try:
                declared.tensors[fqn] = read.tensor(fqn, entry)
            except _RefusedError as error:
                declared.broken.add(fqn)
                bag.add(malformed(file, f"{fqn}: {error}", fqn=fqn))
            except _UnknownClassError as error:
                declared.broken.add(fqn)
                bag.add(unknown_class(file, str(error), f"a part of {fqn}"))
        elif type(entry) is BytesEntry:
            declared.objects.add(fqn)
        else:
            declared.broken.add(fqn)
            bag.add(_strange(file, fqn, entry))
    return declared


def _strange(file: str, fqn: str, entry: object) -> Finding:
    if isinstance(entry, Opaque):
        return unknown_class(file, entry.ref.dotted, f"the entry of {fqn}")
    return malformed(file, f"the entry of {fqn} is {shown(entry)}", fqn=fqn)


def is_name(value: object) -> TypeGuard[str]:
    """Say whether this is text that can be printed: pickles may hold lone surrogates."""
    if type(value) is not str:
        return False
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


class _TensorReader:
    """Turns entries into tensors; remembers sizes that it has judged, which are shared by the million."""

    def __init__(self) -> None:
        self._judged: dict[int, tuple[int, ...]] = {}

    def tensor(self, fqn: str, entry: TensorEntry) -> Tensor:
        """Return the tensor.

        Raises:
            _RefusedError, _UnknownClassError: It is none.
        """
        properties = entry.properties
        dtype = properties.dtype if type(properties) is Properties else None
        if type(dtype) is not Dtype:
            dtype = Dtype(_unknown_dtype(properties))
        shape = self._extent(entry.size, "size")
        if type(entry.chunks) is not list:
            msg = f"its chunks are {shown(entry.chunks)}"
            raise _RefusedError(msg)
        slices = tuple([chunk if type(chunk) is Slice else self._slice(chunk) for chunk in entry.chunks])
        num_dims = len(shape)
        for offsets, sizes in slices:
            if len(offsets) != num_dims or len(sizes) != num_dims:
                msg = f"{num_dims} dimensions, a chunk with {len(offsets)} offsets, {len(sizes)} sizes"
                raise _RefusedError(msg)
        return tuple.__new__(Tensor, (fqn, dtype.name, shape, slices))  # as Tensor(...), in half the time

    def _slice(self, chunk: object) -> Slice:
        """Judge a chunk; those that a shortcut read are slices already, of opcodes that allow no other."""
        if type(chunk) is Chunk:
            return Slice(self._extent(chunk.offsets, "offsets"), self._extent(chunk.sizes, "sizes"))
        if isinstance(chunk, Opaque):
            raise _UnknownClassError(chunk.ref.dotted)
        msg = f"a chunk of it is {shown(chunk)}"
        raise _RefusedError(msg)

    def _extent(self, value: object, what: str) -> tuple[int, ...]:
        known = self._judged.get(id(value))
        if known is not None:
            return known
        if not is_extent(value):
            msg = f"its {what} are {shown(value) if type(value) is not tuple else 'no sizes'}"
            raise _RefusedError(msg)
        self._judged[id(value)] = value  # holds it, so that the id stays its own
        return value


def is_extent(value: object) -> TypeGuard[tuple[int, ...]]:
    """Say whether this is a tuple of offsets or sizes."""
    if type(value) is not tuple or len(value) > MAX_DIMS:
        return False
    return all(type(number) is int and 0 <= number < _TOO_LARGE for number in value)


def _unknown_dtype(properties: object) -> str:
    """Return the name of a dtype that this version lacks.

    Raises:
        _RefusedError, _UnknownClassError: It is no dtype at all.
    """
    if isinstance(properties, Opaque):
        raise _UnknownClassError(properties.ref.dotted)
    dtype = properties.dtype if isinstance(properties, Properties) else None
    if isinstance(dtype, GlobalRef) and dtype.module == "torch" and dtype.name.isidentifier():
        return dtype.name
    msg = f"its dtype is {shown(dtype if isinstance(properties, Properties) else properties)}"
    raise _RefusedError(msg)

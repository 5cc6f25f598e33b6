"""Where verified payload goes: nowhere, or through DCP onto a device."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ckptguard.formats.protocol import StoredTensor
from ckptguard.model.finding import Finding
from ckptguard.model.layout import Item
from ckptguard.model.report import TensorNumerics


class PayloadSink(Protocol):
    """Takes the payload of one shard, in order, from one thread.

    Views are valid only during the call.
    """

    def buffer(self, length_bytes: int) -> memoryview:
        """Return the memory that the shard is read into, 64-byte aligned.

        A sink that loads onto the CPU hands out the window itself, so that reading
        a tensor's bytes is placing them.
        """
        ...

    def whole(self, item: Item, stored: StoredTensor, payload: memoryview) -> None:
        """Take the whole storage of one sound tensor item."""
        ...

    def piece(self, item: Item, start: int, view: memoryview) -> None:
        """Take bytes `[start, start + len(view))` of a storage that passes in parts."""
        ...

    def end(self, item: Item, stored: StoredTensor | None) -> None:
        """Learn that a storage that passed in parts is complete; None: it was not sound."""
        ...

    def whole_object(self, item: Item, view: memoryview | None) -> None:
        """Take one sound pickled object; None: it was too large to be held."""
        ...

    @property
    def num_loaded(self) -> int:
        """Items handed through DCP so far."""
        ...

    def numerics(self) -> Mapping[str, TensorNumerics]:
        """Return what was measured, by FQN."""
        ...

    def findings(self) -> Sequence[Finding]:
        """Return what kept the sink from taking something."""
        ...


class NullSink:
    """Drops everything: the pass below depth `load`."""

    def buffer(self, length_bytes: int) -> memoryview:
        """Return plain memory."""
        return memoryview(bytearray(length_bytes))

    def whole(self, item: Item, stored: StoredTensor, payload: memoryview) -> None:
        """Drop."""

    def piece(self, item: Item, start: int, view: memoryview) -> None:
        """Drop."""

    def end(self, item: Item, stored: StoredTensor | None) -> None:
        """Drop."""

    def whole_object(self, item: Item, view: memoryview | None) -> None:
        """Drop."""

    @property
    def num_loaded(self) -> int:
        """Return 0: nothing is loaded."""
        return 0

    def numerics(self) -> Mapping[str, TensorNumerics]:
        """Return nothing."""
        return {}

    def findings(self) -> Sequence[Finding]:
        """Return nothing."""
        return ()

"""What a format adapter answers, and what a verifier of stored bytes reports.

Adapters register by entry point (group `ckptguard.formats`). An adapter reads
metadata only; the bytes of shards are read once, by `ckptguard.scan`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from ckptguard.model.finding import FindingCode
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store


class FormatAdapter(Protocol):
    """One checkpoint format."""

    name: str

    def recognises(self, listing: Listing) -> bool:
        """Say from names alone whether this folder itself is one part of this format.

        Also True for an uncommitted or damaged one: what is missing is for `open` to say.
        """
        ...

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Read the metadata of one part. Damage becomes findings in the layout, never an exception.

        Returns:
            Usually one layout; one per rank where metadata is rank-local. Paths are
            relative to `listing.root`.

        Raises:
            StoreError: The store did not answer.
            LimitExceededError: Beyond `limits`.
        """
        ...


class CrcState(StrEnum):
    """Whether the writer stored CRC-32s."""

    CHECKED = "checked"
    ABSENT = "absent"  # the writer turned them off: all are 0


class StoredTensor(NamedTuple):
    """A tensor as the item's own pickle describes it.

    Args:
        dtype: torch's name without prefix.
        sizes: Elements in each dimension.
        stride: Elements to step in each dimension.
        storage_offset: First element in the storage.
        storage_key: Record `data/KEY` that holds the storage.
        storage_bytes: Length of that record.
        requires_grad: As stored.
    """

    dtype: str
    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    storage_key: str
    storage_bytes: int
    requires_grad: bool = False


class Problem(NamedTuple):
    """One fault inside one item; offsets count from the item's first byte.

    Args:
        code: What kind.
        message: One sentence.
        record: Zip entry concerned.
        offset: First byte concerned.
        length_bytes: Bytes concerned.
        expected: As text.
        observed: As text; identical bytes give identical text, so that a second look
            can tell a stable fault from an unstable read.
    """

    code: FindingCode
    message: str
    record: str | None = None
    offset: int | None = None
    length_bytes: int | None = None
    expected: str | None = None
    observed: str | None = None


class RecordExtent(NamedTuple):
    """Where one record of a sound item lies.

    Args:
        name: As torch says, e.g. `data/0`.
        offset: Of its local header, from the item's first byte.
        payload_offset: Of its content, from the item's first byte.
        length_bytes: Of its content.
        crc: CRC-32 as stored; 0 where the writer turned them off.
    """

    name: bytes
    offset: int
    payload_offset: int
    length_bytes: int
    crc: int


class Payload(NamedTuple):
    """A piece of one storage as it passes: bytes `[start, start + len(view))` of record `data/KEY`.

    Valid only until the next call into the verifier.
    """

    storage_key: str
    start: int
    view: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReport:
    """What verifying one item's bytes found.

    Args:
        problems: Faults; empty if the bytes are exactly what torch's writer makes of its payload.
        crc: Whether CRC-32s were there to check.
        records: Zip entries verified.
        tensor: The stored tensor, where the item is a single tensor.
        globals: `module.name` of every class or function that unpickling would name.
        extents: The records in order; empty if there are problems.
    """

    problems: tuple[Problem, ...] = ()
    crc: CrcState = CrcState.CHECKED
    records: int = 0
    tensor: StoredTensor | None = None
    globals: frozenset[str] = frozenset()
    extents: tuple[RecordExtent, ...] = ()


class ItemVerifier(Protocol):
    """Verifies one item from its bytes, fed once, in order, in any pieces."""

    def feed(self, view: memoryview) -> Iterator[Payload]:
        """Take the next bytes; yield the storage payload among them. Never raises on damage."""
        ...

    def finish(self) -> ItemReport:
        """Report, after the last byte was fed."""
        ...

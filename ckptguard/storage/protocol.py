"""The storage contract: everything the product asks of a store.

The whole surface is `Store` and `RangeReader`; `ckptguard.testing.store_contract`
is the suite that each implementation runs. Paths are relative to the store's root,
`/`-separated, without `.`, `..` or empty segments.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self, runtime_checkable

from ckptguard.errors import LimitExceededError, StoreUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStat:
    """What a store says about one object, without reading it.

    Args:
        path: Relative to the store's root.
        length_bytes: Size now.
        modified_at: Aware UTC; None where the store keeps no times.
        version: Changes when the bytes change: a version id, an ETag, or
            `inode-mtime_ns-size`; None where the store has nothing of the kind.
        is_link: Reached through a symbolic link (its target is inside the root).
    """

    path: str
    length_bytes: int
    modified_at: datetime | None = None
    version: str | None = None
    is_link: bool = False


class RangeReader(Protocol):
    """One open object. Used by one thread at a time."""

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset`; return bytes read.

        Guarantees: fewer bytes than asked only at the end of the object. Retries of
        what is retryable have been made.

        Raises:
            StoreUnavailableError: No answer after retries.
            ObjectNotFoundError: The object went away.
            AccessDeniedError: Refused.
        """
        ...

    def will_need(self, offset: int, length_bytes: int) -> None:
        """Hint that this range is read next; may start fetching. Never raises."""
        ...

    def forget(self, offset: int, length_bytes: int) -> None:
        """Drop caches of this range, so that the next read reaches the medium. Never raises."""
        ...

    def close(self) -> None:
        """Release the object; idempotent."""
        ...

    def __enter__(self) -> Self:
        """Return itself."""
        ...

    def __exit__(self, *exc: object) -> None:
        """Close."""
        ...


class Store(Protocol):
    """A named storage root that an operator allows. Safe to share between threads."""

    @property
    def url(self) -> str:
        """The root as a person would write it; never holds credentials."""
        ...

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Yield every object at or below `prefix`, in any order; empty if there is none.

        `prefix` names a folder; a file of exactly that name is yielded alone.
        Links out of the root are yielded by raising nothing and opening nothing:
        they appear in `escapes`.

        Raises:
            StoreUnavailableError, AccessDeniedError: Never an empty answer instead.
        """
        ...

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield paths at or below `prefix` that are links to outside the root, or not regular files."""
        ...

    def stat(self, path: str) -> ObjectStat:
        """Describe one object, asking the store anew (no cached listing).

        Raises:
            ObjectNotFoundError, AccessDeniedError, StoreUnavailableError, PathEscapeError.
        """
        ...

    def open(self, path: str) -> RangeReader:
        """Open one object for ranged reads.

        Raises:
            ObjectNotFoundError, AccessDeniedError, StoreUnavailableError, PathEscapeError.
        """
        ...


@runtime_checkable
class WholeReader(Protocol):
    """A store with its own way to read small objects whole, such as one that remembers them."""

    def read_whole(self, path: str, *, max_bytes: int) -> bytes:
        """Read one small object; as the function `read_whole`."""
        ...


def read_whole(store: Store, path: str, *, max_bytes: int) -> bytes:
    """Read one small object.

    Raises:
        LimitExceededError: It is larger than `max_bytes`; nothing was allocated.
        StoreUnavailableError: Its length changed meanwhile, so that what was read is neither
            the old nor surely the new object.
        StoreError: As `Store.open`.
    """
    if isinstance(store, WholeReader):
        return store.read_whole(path, max_bytes=max_bytes)
    length = store.stat(path).length_bytes
    if length > max_bytes:
        msg = f"{path} has {length} bytes, limit {max_bytes}"
        raise LimitExceededError(msg)
    buffer = bytearray(length + 1)  # one more, to see that it ends there
    with store.open(path) as reader:
        got = reader.readinto(memoryview(buffer), 0)
    if got != length:
        msg = f"changed while being read, from {length} to {got} bytes or more"
        raise StoreUnavailableError(msg, key=path)
    return bytes(memoryview(buffer)[:length])

"""A store in this process's memory: for tests, and for bytes that were already read."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, Self

from ckptguard.errors import AccessDeniedError, ObjectNotFoundError
from ckptguard.storage.paths import require_folder, require_plain
from ckptguard.storage.protocol import ObjectStat, RangeReader

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class _Object(NamedTuple):
    content: bytes
    modified_at: datetime
    generation: int


class MemoryStore:
    """Objects by path; `put`, `remove` and `deny` change it under whoever reads it.

    Args:
        objects: Bytes by plain relative path.
        modified_at: Time of all of them.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None, *, modified_at: datetime = EPOCH) -> None:
        self._objects: dict[str, _Object] = {}
        self._denied: set[str] = set()
        self._num_puts = 0
        for path, content in (objects or {}).items():
            self.put(path, content, modified_at=modified_at)

    @property
    def url(self) -> str:
        """Always the same; a memory store has no name."""
        return "memory:"

    def put(self, path: str, content: bytes, *, modified_at: datetime = EPOCH) -> None:
        """Write one object; its version is new even where the bytes are not."""
        self._num_puts += 1
        self._objects[require_plain(path)] = _Object(bytes(content), modified_at, self._num_puts)

    def remove(self, path: str) -> None:
        """Delete one object; KeyError if there is none."""
        del self._objects[path]

    def deny(self, path: str) -> None:
        """Refuse every request about `path`, or about anything below it, from now on."""
        self._denied.add(path)

    def allow(self, path: str) -> None:
        """Take back `deny`."""
        self._denied.discard(path)

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Yield every object at or below `prefix`.

        Raises:
            AccessDeniedError: Anything at, below or above `prefix` is denied.
        """
        folder = require_folder(prefix)
        self._require_allowed(folder)
        for denied in sorted(self._denied):
            if _is_at_or_below(denied, folder):
                msg = "access denied"
                raise AccessDeniedError(msg, key=denied)
        for path in sorted(self._objects):
            if _is_at_or_below(path, folder) and path in self._objects:
                yield self.stat(path)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield nothing: memory has no links."""
        require_folder(prefix)
        return iter(())

    def stat(self, path: str) -> ObjectStat:
        """Describe one object.

        Raises:
            ObjectNotFoundError, AccessDeniedError, PathEscapeError.
        """
        found = self._find(path)
        return ObjectStat(
            path=path,
            length_bytes=len(found.content),
            modified_at=found.modified_at,
            version=str(found.generation),
        )

    def open(self, path: str) -> RangeReader:
        """Open one object as it is now; a later `put` does not change what is read.

        Raises:
            ObjectNotFoundError, AccessDeniedError, PathEscapeError.
        """
        found = self._find(path)
        return MemoryReader(found.content, version=str(found.generation))

    def _find(self, path: str) -> _Object:
        self._require_allowed(require_plain(path))
        try:
            return self._objects[path]
        except KeyError as error:
            msg = "no such object"
            raise ObjectNotFoundError(msg, key=path) from error

    def _require_allowed(self, path: str) -> None:
        if any(_is_at_or_below(path, denied) for denied in self._denied):
            msg = "access denied"
            raise AccessDeniedError(msg, key=path)


class MemoryReader:
    """Bytes, read by position.

    Args:
        content: All of the object.
        version: Of the object, for `version`.
    """

    def __init__(self, content: bytes, *, version: str | None = None) -> None:
        self._content = memoryview(content)
        self.version = version

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Copy from `offset`; fewer bytes only at the end."""
        piece = self._content[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def will_need(self, offset: int, length_bytes: int) -> None:
        """Do nothing."""

    def forget(self, offset: int, length_bytes: int) -> None:
        """Do nothing: there is no cache."""

    def close(self) -> None:
        """Let the bytes go; idempotent."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()


def _is_at_or_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")

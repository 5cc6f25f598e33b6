"""Ranged reads of one remote object: large ranges in concurrent parts, hints fetched ahead."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from typing import NamedTuple, Self

from ckptguard.errors import StoreError, StoreUnavailableError
from ckptguard.storage.protocol import ObjectStat

PART_BYTES = 8 << 20
"""One request asks for this many bytes at most: large enough to pay its round trip."""

WINDOW_BYTES = 32 << 20
"""Fetched ahead and not yet read, per reader, at most."""

MAX_PARTS_AHEAD = 32
"""However small the hinted ranges are."""

PART_TIMEOUT_S = 300.0
"""For drivers without a timeout of their own."""

Fetch = Callable[[int, int], bytes]
"""Return exactly the bytes `[start, end)` of the object, or raise StoreError."""


class _Part(NamedTuple):
    """A range `[start, end)` being fetched ahead."""

    start: int
    end: int
    content: "Future[bytes]"


class _Piece(NamedTuple):
    """A range `[start, end)` of one read, and the part that holds it, if any."""

    start: int
    end: int
    part: _Part | None


class FsspecReader:
    """One remote object of known length. Nothing is asked for that no read and no hint named.

    Args:
        fetch: Makes one request; called from several threads.
        stat: Of the object when it was opened.
        executor: Where requests run that are made at the same time.
    """

    def __init__(self, fetch: Fetch, stat: ObjectStat, executor: Executor) -> None:
        self._fetch = fetch
        self._stat = stat
        self._executor = executor
        self._ahead: list[_Part] = []  # sorted, disjoint
        self._position = 0  # behind the last read

    @property
    def version(self) -> str | None:
        """Of the object when it was opened."""
        return self._stat.version

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset`; fewer bytes only at the end of the object.

        Parts that arrived stay, so that a retry asks only for those that did not.

        Raises:
            StoreError: As `fetch`; nothing is written into `buffer` afterwards.
        """
        end = min(offset + len(buffer), self._stat.length_bytes)
        pieces = self._pieces(offset, end)
        missing = [piece for piece in pieces if piece.part is None]
        running = [
            self._executor.submit(self._fetch_into, buffer[start - offset : stop - offset], start)
            for piece in missing
            for start, stop in _split(piece.start, piece.end)
        ]
        try:
            for start, stop, part in pieces:
                if part is not None:
                    buffer[start - offset : stop - offset] = self._taken(part, start, stop)
        finally:
            wait(running)  # none may write into the caller's buffer once it is his again
        for future in running:
            future.result()
        self._ahead = [part for part in self._ahead if not offset < part.end <= end]
        self._position = max(offset, end)
        return max(0, end - offset)

    def will_need(self, offset: int, length_bytes: int) -> None:
        """Start fetching, in order, as much of the range as the window has room for."""
        end = min(offset + length_bytes, self._stat.length_bytes)
        self._drop(lambda part: part.end <= self._position)
        room = WINDOW_BYTES - sum(part.end - part.start for part in self._ahead)
        for piece in self._pieces(offset, end):
            for start, stop in _split(piece.start, piece.end) if piece.part is None else ():
                if stop - start > room or len(self._ahead) >= MAX_PARTS_AHEAD:
                    return
                room -= stop - start
                self._ahead.append(_Part(start, stop, self._executor.submit(self._fetch, start, stop)))
                self._ahead.sort(key=lambda part: part.start)

    def forget(self, offset: int, length_bytes: int) -> None:
        """Drop what was fetched ahead of this range; the next read asks the store."""
        self._drop(lambda part: part.start < offset + length_bytes and offset < part.end)

    def close(self) -> None:
        """Give up what is still being fetched; idempotent."""
        self._drop(lambda _: True)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _pieces(self, offset: int, end: int) -> list[_Piece]:
        """Cut `[offset, end)` where parts fetched ahead begin and end."""
        pieces: list[_Piece] = []
        for part in self._ahead:
            if part.end <= offset or part.start >= end:
                continue
            if part.start > offset:
                pieces.append(_Piece(offset, part.start, None))
            offset = max(offset, part.start)
            pieces.append(_Piece(offset, min(part.end, end), part))
            offset = part.end
        if offset < end:
            pieces.append(_Piece(offset, end, None))
        return pieces

    def _taken(self, part: _Part, start: int, end: int) -> memoryview:
        try:
            content = part.content.result(PART_TIMEOUT_S)
        except TimeoutError as error:
            self._ahead.remove(part)
            msg = f"no answer in {PART_TIMEOUT_S:.0f} s"
            raise StoreUnavailableError(msg, key=self._stat.path) from error
        except StoreError:
            self._ahead.remove(part)
            raise
        return memoryview(content)[start - part.start : end - part.start]

    def _fetch_into(self, buffer: memoryview, start: int) -> None:
        buffer[:] = self._fetch(start, start + len(buffer))

    def _drop(self, is_dropped: Callable[[_Part], bool]) -> None:
        for part in filter(is_dropped, self._ahead):
            part.content.cancel()
        self._ahead = [part for part in self._ahead if not is_dropped(part)]


def _split(start: int, end: int) -> list[tuple[int, int]]:
    return [(at, min(at + PART_BYTES, end)) for at in range(start, end, PART_BYTES)]

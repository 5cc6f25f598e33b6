"""FsspecReader: what is asked of the store, when, and how much is held."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ckptguard.errors import StoreUnavailableError
from ckptguard.storage.fsspec_reader import MAX_PARTS_AHEAD, PART_BYTES, WINDOW_BYTES, FsspecReader
from ckptguard.storage.protocol import ObjectStat

CONTENT = bytes(range(251)) * (3 * PART_BYTES // 251 + 2)


class Remote:
    """Bytes behind a `fetch` that notes what was asked, and fails when told to."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.asked: list[tuple[int, int]] = []
        self.failures: dict[int, int] = {}
        self._lock = threading.Lock()

    def fetch(self, start: int, end: int) -> bytes:
        """Answer one request."""
        with self._lock:
            self.asked.append((start, end))
            if self.failures.get(start, 0) > 0:
                self.failures[start] -= 1
                msg = "scripted"
                raise StoreUnavailableError(msg)
        return CONTENT[start:end]

    @property
    def bytes_asked(self) -> int:
        """All that was asked for, repeats included."""
        return sum(end - start for start, end in self.asked)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def _reader(executor: ThreadPoolExecutor, length: int) -> tuple[Remote, FsspecReader]:
    remote = Remote(length)
    stat = ObjectStat(path="a", length_bytes=length, version="v1")
    return remote, FsspecReader(remote.fetch, stat, executor)


def _read(reader: FsspecReader, offset: int, length: int) -> bytes:
    buffer = bytearray(length)
    got = reader.readinto(memoryview(buffer), offset)
    return bytes(buffer[:got])


def test_only_the_range_of_a_read_is_asked_for(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 1000)
    assert _read(reader, 100, 50) == CONTENT[100:150]
    assert _read(reader, 990, 50) == CONTENT[990:1000]
    assert _read(reader, 1000, 50) == b""
    assert remote.asked == [(100, 150), (990, 1000)]


def test_large_range_is_asked_for_in_parts(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 3 * PART_BYTES)
    assert _read(reader, 1, 2 * PART_BYTES) == CONTENT[1 : 2 * PART_BYTES + 1]
    assert sorted(remote.asked) == [(1, PART_BYTES + 1), (PART_BYTES + 1, 2 * PART_BYTES + 1)]


def test_hinted_range_is_asked_for_once_in_order_then_read_without_asking(
    executor: ThreadPoolExecutor,
) -> None:
    remote, reader = _reader(executor, 3 * PART_BYTES)
    reader.will_need(0, 2 * PART_BYTES)
    reader.will_need(PART_BYTES, 2 * PART_BYTES)
    assert _read(reader, 0, PART_BYTES) == CONTENT[:PART_BYTES]
    assert _read(reader, PART_BYTES, 2 * PART_BYTES) == CONTENT[PART_BYTES : 3 * PART_BYTES]
    assert remote.bytes_asked == 3 * PART_BYTES


def test_read_across_hinted_and_other_ranges_is_whole(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 1000)
    reader.will_need(300, 100)
    reader.will_need(600, 100)
    assert _read(reader, 250, 500) == CONTENT[250:750]
    assert remote.bytes_asked == 500


def test_what_is_held_ahead_is_bounded(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 100 * PART_BYTES)
    reader.will_need(0, 100 * PART_BYTES)
    for tiny in range(100):
        reader.will_need(50 * PART_BYTES + 2 * tiny, 1)
    reader.close()
    executor.shutdown(wait=True)
    assert remote.bytes_asked <= WINDOW_BYTES
    assert len(remote.asked) <= max(MAX_PARTS_AHEAD, WINDOW_BYTES // PART_BYTES)


def test_forgotten_range_is_asked_for_again(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 1000)
    reader.will_need(0, 1000)
    reader.forget(500, 1)
    assert _read(reader, 0, 1000) == CONTENT[:1000]
    assert remote.asked.count((0, 1000)) == 2 or len(remote.asked) == 1  # cancelled before it ran


def test_retry_asks_only_for_the_parts_that_did_not_arrive(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 3 * PART_BYTES)
    remote.failures[PART_BYTES] = 1
    reader.will_need(0, 3 * PART_BYTES)
    with pytest.raises(StoreUnavailableError):
        _read(reader, 0, 3 * PART_BYTES)
    assert _read(reader, 0, 3 * PART_BYTES) == CONTENT[: 3 * PART_BYTES]
    assert sorted(remote.asked).count((PART_BYTES, 2 * PART_BYTES)) == 2
    assert remote.bytes_asked == 4 * PART_BYTES


def test_failed_read_writes_nothing_afterwards(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 3 * PART_BYTES)
    remote.failures[0] = 1
    buffer = bytearray(3 * PART_BYTES)
    with pytest.raises(StoreUnavailableError):
        reader.readinto(memoryview(buffer), 0)
    after = bytes(buffer)
    executor.shutdown(wait=True)
    assert bytes(buffer) == after


def test_failed_hint_is_no_error_until_it_is_read(executor: ThreadPoolExecutor) -> None:
    remote, reader = _reader(executor, 1000)
    remote.failures[0] = 1
    reader.will_need(0, 1000)
    with pytest.raises(StoreUnavailableError):
        _read(reader, 0, 10)
    assert _read(reader, 0, 10) == CONTENT[:10]

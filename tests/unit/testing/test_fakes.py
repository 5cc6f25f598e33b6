"""The fakes do what their scripts say, that often, and then nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from ckptguard.errors import AccessDeniedError, StoreUnavailableError
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import Store
from ckptguard.testing.fakes import (
    BrokenRead,
    BrokenRequest,
    FakeClock,
    FaultyStore,
    FlippedRead,
    HiddenObject,
    ShortStat,
)

CONTENT = b"0123456789"


def _read(store: Store, path: str = "a") -> bytes:
    buffer = bytearray(20)
    with store.open(path) as reader:
        got = reader.readinto(memoryview(buffer), 0)
    return bytes(buffer[:got])


def _paths(store: Store) -> list[str]:
    return [stat.path for stat in store.walk()]


def test_clock_moves_only_when_told() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    before = clock.now()
    assert clock.now() == before
    clock.sleep(30)
    clock.advance(1)
    assert clock.now() - before == timedelta(seconds=31)
    assert (clock.monotonic_s(), clock.sleeps_s) == (31, [30])
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_something_can_happen_while_the_clock_sleeps() -> None:
    memory = MemoryStore()
    clock = FakeClock(on_sleep=lambda _: memory.put("late", b"x"))
    clock.sleep(1)
    assert _paths(memory) == ["late"]


def test_lagging_listing_shows_the_object_later() -> None:
    store = FaultyStore(MemoryStore({"a": CONTENT, "b": b""}), HiddenObject(path="a", walks=2))
    assert [_paths(store) for _ in range(3)] == [["b"], ["b"], ["a", "b"]]
    assert store.stat("a").length_bytes == 10


def test_unstable_read_differs_from_the_next() -> None:
    store = FaultyStore(MemoryStore({"a": CONTENT}), FlippedRead(path="a", offset=3, bit=0))
    assert [_read(store) for _ in range(2)] == [b"0122456789", CONTENT]


def test_broken_read_delivers_what_came_before_it() -> None:
    store = FaultyStore(MemoryStore({"a": CONTENT}), BrokenRead(path="a", at_byte=4))
    buffer = bytearray(10)
    with store.open("a") as reader:
        with pytest.raises(StoreUnavailableError):
            reader.readinto(memoryview(buffer), 0)
        assert buffer == b"0123" + bytes(6)
        assert reader.readinto(memoryview(buffer)[:4], 0) == 4
    assert _read(store) == CONTENT


def test_short_stat_is_right_the_second_time() -> None:
    store = FaultyStore(MemoryStore({"a": CONTENT}), ShortStat(path="a", missing_bytes=3))
    assert [next(store.walk()).length_bytes, store.stat("a").length_bytes] == [7, 10]


def test_refused_paths_are_refused_for_ever() -> None:
    store = FaultyStore(MemoryStore({"d/a": CONTENT, "e": b""}), denied=frozenset({"d"}))
    for _ in range(2):
        with pytest.raises(AccessDeniedError):
            store.stat("d/a")
        with pytest.raises(AccessDeniedError):
            _paths(store)
    assert store.stat("e").length_bytes == 0


def test_broken_request_concerns_its_own_path_only() -> None:
    store = FaultyStore(MemoryStore({"a": CONTENT, "b": b""}), BrokenRequest(operation="stat", path="a"))
    assert store.stat("b").length_bytes == 0
    with pytest.raises(StoreUnavailableError):
        store.stat("a")
    assert store.stat("a").length_bytes == 10
    assert store.requests == {"stat": 3}

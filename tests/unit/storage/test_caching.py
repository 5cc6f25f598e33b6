"""CachingStore: metadata is read once, bytes are counted where they are read."""

import threading

import pytest

from ckptguard.errors import LimitExceededError, ObjectNotFoundError, StoreUnavailableError
from ckptguard.storage.caching import CachingStore
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import read_whole
from ckptguard.testing.fakes import FaultyStore, ShortStat


def _read(store: CachingStore, path: str, length: int, *, is_fresh: bool = False) -> bytes:
    buffer = bytearray(length)
    with store.open(path) as reader:
        if is_fresh:
            reader.forget(0, length)
        got = reader.readinto(memoryview(buffer), 0)
    return bytes(buffer[:got])


def test_whole_object_is_read_once_and_remembered() -> None:
    faulty = FaultyStore(MemoryStore({".metadata": b"12345", "shard": b"x" * 10}))
    store = CachingStore(faulty)
    for _ in range(3):
        assert read_whole(store, ".metadata", max_bytes=10) == b"12345"
    assert _read(store, ".metadata", 5) == b"12345"
    assert store.blobs == {".metadata": b"12345"}
    assert (faulty.requests["open"], store.bytes_read) == (1, 5)


def test_shards_are_counted_and_not_remembered() -> None:
    store = CachingStore(MemoryStore({"shard": b"x" * 10}))
    assert _read(store, "shard", 100) == b"x" * 10
    _read(store, "shard", 4)
    assert store.bytes_read == 14
    assert store.blobs == {}


def test_another_stores_blobs_are_answered_without_a_read() -> None:
    faulty = FaultyStore(MemoryStore({".metadata": b"12345"}))
    first = CachingStore(faulty)
    read_whole(first, ".metadata", max_bytes=10)
    second = CachingStore(faulty, first.blobs)
    assert read_whole(second, ".metadata", max_bytes=10) == b"12345"
    assert _read(second, ".metadata", 5) == b"12345"
    assert (faulty.requests["open"], second.bytes_read) == (1, 0)


def test_remembered_bytes_are_read_anew_after_forget() -> None:
    memory = MemoryStore({".metadata": b"old"})
    store = CachingStore(memory)
    read_whole(store, ".metadata", max_bytes=10)
    memory.put(".metadata", b"new")
    assert _read(store, ".metadata", 3) == b"old"
    assert _read(store, ".metadata", 3, is_fresh=True) == b"new"
    assert store.bytes_read == 6


def test_stat_and_listing_are_never_answered_from_memory() -> None:
    memory = MemoryStore({".metadata": b"old"})
    store = CachingStore(memory)
    read_whole(store, ".metadata", max_bytes=10)
    memory.remove(".metadata")
    assert list(store.walk()) == []
    with pytest.raises(ObjectNotFoundError):
        store.stat(".metadata")


def test_limit_holds_for_remembered_bytes() -> None:
    store = CachingStore(MemoryStore(), {"a": b"12345"})
    with pytest.raises(LimitExceededError):
        read_whole(store, "a", max_bytes=4)


def test_object_whose_length_changes_meanwhile_is_unknown_not_truncated() -> None:
    store = FaultyStore(MemoryStore({"a": b"12345"}), ShortStat(path="a"))
    with pytest.raises(StoreUnavailableError):
        read_whole(store, "a", max_bytes=10)
    assert read_whole(store, "a", max_bytes=10) == b"12345"


def test_bytes_of_all_threads_are_counted() -> None:
    store = CachingStore(MemoryStore({"a": b"x" * 1000}))

    def read_much() -> None:
        with store.open("a") as reader:
            for _ in range(500):
                reader.readinto(memoryview(bytearray(10)), 0)

    threads = [threading.Thread(target=read_much) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.bytes_read == 4 * 500 * 10

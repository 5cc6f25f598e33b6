"""What is opened is what was listed, and reading ahead keeps the order."""

import threading

import pytest

from ckptguard.errors import LimitExceededError, ObjectNotFoundError, StoreUnavailableError
from ckptguard.operations.adopt.listed_store import ListedStore, list_once
from ckptguard.operations.adopt.prepare import mapped_ahead
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import read_whole
from tests.unit.operations.adopt.adopting import CountingStore


def listed(inner: MemoryStore) -> tuple[ListedStore, CountingStore]:
    counting = CountingStore(inner)
    return ListedStore(counting, list_once(counting, "a")), counting


def test_lengths_come_from_the_listing_without_a_request() -> None:
    store, counting = listed(MemoryStore({"a/x": b"123", "b/y": b"1"}))
    assert read_whole(store, "a/x", max_bytes=3) == b"123"
    assert (counting.stats, counting.opened) == (0, ["a/x"])
    with pytest.raises(ObjectNotFoundError):
        store.stat("b/y")


def test_an_object_that_is_replaced_after_the_listing_is_not_read() -> None:
    inner = MemoryStore({"a/x": b"123"})
    store, _ = listed(inner)
    inner.put("a/x", b"456")
    with pytest.raises(StoreUnavailableError, match="changed since it was listed"):
        store.open("a/x")


def test_more_files_than_the_bound_are_refused() -> None:
    with pytest.raises(LimitExceededError):
        list_once(MemoryStore({"a/x": b"", "a/y": b""}), "a", max_files=1)


def test_answers_come_in_order_and_no_more_than_a_few_ahead() -> None:
    taken: list[int] = []
    may_go = threading.Event()

    def items() -> "list[int]":
        return list(range(100))

    def slow_first(item: int) -> int:
        taken.append(item)
        if item == 0:
            may_go.wait(10)
        return item

    answers = mapped_ahead(slow_first, iter(items()), threads=2)
    threading.Timer(0.05, may_go.set).start()
    assert next(answers) == 0
    assert len(taken) <= 2 * 4 + 1
    assert list(answers) == list(range(1, 100))

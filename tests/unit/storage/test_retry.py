"""RetryingStore: asks again what may be answered later, and nothing else, and not for ever."""

import pytest

from ckptguard.errors import AccessDeniedError, ObjectNotFoundError, StoreError, StoreUnavailableError
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import read_whole
from ckptguard.storage.retry import RetryingStore, RetryPolicy
from ckptguard.testing.fakes import BrokenRead, BrokenRequest, FaultyStore

AT_ONCE = RetryPolicy(attempts=3, wait_initial_s=0, wait_max_s=0, wait_jitter_s=0)
CONTENT = bytes(range(256))


def _stores(*faults: BrokenRead | BrokenRequest) -> tuple[FaultyStore, RetryingStore]:
    faulty = FaultyStore(MemoryStore({"a": CONTENT, "b": b"2", "c": b"3"}), *faults)
    return faulty, RetryingStore(faulty, AT_ONCE)


def test_read_that_fails_half_way_is_made_again_from_its_offset() -> None:
    faulty, store = _stores(BrokenRead(path="a", at_byte=100, times=2))
    buffer = bytearray(150)
    with store.open("a") as reader:
        assert reader.readinto(memoryview(buffer), 50) == 150
    assert buffer == CONTENT[50:200]
    assert faulty.requests["read"] == 3


def test_read_that_keeps_failing_ends_with_its_error() -> None:
    faulty, store = _stores(BrokenRead(path="a", at_byte=0, times=99))
    with store.open("a") as reader, pytest.raises(StoreUnavailableError, match="at byte 0"):
        reader.readinto(memoryview(bytearray(1)), 0)
    assert faulty.requests["read"] == AT_ONCE.attempts


@pytest.mark.parametrize("error", [AccessDeniedError, ObjectNotFoundError, StoreError])
@pytest.mark.parametrize("operation", ["walk", "escapes", "stat", "open"])
def test_answers_are_not_asked_for_again(operation: str, error: type[StoreError]) -> None:
    faulty, store = _stores(BrokenRequest(operation=operation, error=error))
    with pytest.raises(error):
        _request(store, operation)
    assert faulty.requests[operation] == 1


@pytest.mark.parametrize("operation", ["walk", "escapes", "stat", "open"])
def test_each_operation_survives_failures_within_the_policy(operation: str) -> None:
    faulty, store = _stores(BrokenRequest(operation=operation, times=2))
    _request(store, operation)
    assert faulty.requests[operation] == 3


def test_broken_off_walk_goes_on_behind_what_was_yielded() -> None:
    faulty, store = _stores(BrokenRequest(operation="walk", after=2))
    assert [stat.path for stat in store.walk()] == ["a", "b", "c"]
    assert faulty.requests["walk"] == 2


def test_walk_that_keeps_breaking_off_is_never_a_short_listing() -> None:
    faulty, store = _stores(BrokenRequest(operation="walk", times=99, after=2))
    seen: list[str] = []
    with pytest.raises(StoreUnavailableError):
        seen.extend(stat.path for stat in store.walk())
    assert faulty.requests["walk"] == AT_ONCE.attempts


def test_object_replaced_between_two_attempts_is_never_read_as_one() -> None:
    memory = MemoryStore({"a": b"old"})
    store = RetryingStore(FaultyStore(memory, BrokenRead(path="a", at_byte=2)), AT_ONCE)
    with store.open("a") as reader:
        reader.readinto(memoryview(bytearray(1)), 0)
        memory.put("a", b"new")
        with pytest.raises(StoreUnavailableError, match="changed while being read"):
            reader.readinto(memoryview(bytearray(2)), 1)


def test_closed_reader_does_not_open_again() -> None:
    faulty, store = _stores()
    reader = store.open("a")
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.readinto(memoryview(bytearray(1)), 0)
    assert faulty.requests["open"] == 1


def test_total_time_is_bounded_too() -> None:
    policy = RetryPolicy(attempts=1000, timeout_s=1e-9, wait_initial_s=0, wait_max_s=0, wait_jitter_s=0)
    faulty = FaultyStore(MemoryStore({"a": b"1"}), BrokenRequest(operation="stat", times=999))
    with pytest.raises(StoreUnavailableError):
        RetryingStore(faulty, policy).stat("a")
    assert faulty.requests["stat"] < 5


def test_policy_without_an_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RetryPolicy(attempts=0)


def test_whole_small_object_survives_every_kind_of_failure() -> None:
    _, store = _stores(
        BrokenRequest(operation="stat"), BrokenRequest(operation="open"), BrokenRead(path="a", at_byte=255)
    )
    assert read_whole(store, "a", max_bytes=256) == CONTENT


def _request(store: RetryingStore, operation: str) -> None:
    match operation:
        case "walk":
            list(store.walk())
        case "escapes":
            list(store.escapes())
        case "stat":
            store.stat("a")
        case _:
            store.open("a").close()

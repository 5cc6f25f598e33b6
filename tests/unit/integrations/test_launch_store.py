"""Sharing one message over a store, also over one that holds what an earlier round left."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from ckptguard.integrations.launch_store import Told, share_over_store

SCOPE = "s/0/1"


class MemoryStore:
    """What `torch.distributed.HashStore` does, of that which is used."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        """Set a key."""
        with self._lock:
            self.values[key] = value

    def get(self, key: str) -> bytes:
        """Return a value."""
        with self._lock:
            return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        """Say whether all keys are there."""
        with self._lock:
            return all(key in self.values for key in keys)

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing: no call blocks."""


def share(
    store: MemoryStore, rank: int, *, message: bytes = b"", world_size: int = 3, deadline_s: float = 20
) -> Told:
    return share_over_store(
        store,
        (lambda: message) if rank == 0 else None,
        scope=SCOPE,
        rank=rank,
        world_size=world_size,
        host=f"host{rank}",
        deadline_s=deadline_s,
    )


def share_all(store: MemoryStore, message: bytes) -> list[Told]:
    with ThreadPoolExecutor(3) as ranks:
        return list(ranks.map(lambda rank: share(store, rank, message=message), range(3)))


def test_every_rank_gets_the_message_and_the_first_learns_the_hosts() -> None:
    told = share_all(MemoryStore(), b"one")
    assert [each.message for each in told] == [b"one"] * 3
    assert (told[0].hosts, told[0].missing) == (("host1", "host2"), ())


def test_an_answer_of_an_earlier_round_is_never_taken() -> None:
    """Torchrun keeps the store, and its keys, when the ranks change without a counted restart."""
    store = MemoryStore()
    for message in (b"one", b"two", b"three"):
        assert [each.message for each in share_all(store, message)] == [message] * 3


def test_a_rank_that_never_asks_is_named_after_the_deadline() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(2) as ranks:
        first = ranks.submit(share, store, 0, message=b"x", deadline_s=0.3)
        second = ranks.submit(share, store, 1, deadline_s=0.3)
        assert second.result().message == b"x"
        assert first.result().missing == (2,)


def test_a_rank_that_gets_no_answer_ends_at_its_deadline() -> None:
    with pytest.raises(TimeoutError, match="rank 0 gave no answer"):
        share(MemoryStore(), 1, deadline_s=0.1)

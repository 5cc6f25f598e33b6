"""One message from rank 0 to every rank through a key-value store, which may hold what an earlier round left.

torchrun keeps one store for several rounds of ranks: when a node joins or leaves, new ranks find
the keys of the old ones. So each rank asks with a word of its own, new in every round, and takes no
answer but the one to that word; and what it says it took is the word of the rank that answered.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

_POLL_S: Final = 0.02
_MAX_POLL_S: Final = 0.5
_WORD_CHARS: Final = 32


class KeyValueStore(Protocol):
    """What is used of `torch.distributed.Store`."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """Return the value of a key that is there."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Say whether all keys are there."""
        ...

    def set_timeout(self, timeout: timedelta) -> None:
        """Bound every call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of it.

    Args:
        message: From rank 0.
        hosts: Of the other ranks, on rank 0.
        missing: Ranks that took no answer before the deadline, on rank 0.
    """

    message: bytes
    hosts: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()


def share_over_store(
    store: KeyValueStore,
    ask: Callable[[], bytes] | None,
    *,
    scope: str,
    rank: int,
    world_size: int,
    host: str,
    deadline_s: float,
) -> Told:
    """Give the message of rank 0 to all ranks.

    Args:
        store: Of the job.
        ask: Makes the message, UTF-8; on rank 0 only.
        scope: Begins every key.
        rank: Of this process.
        world_size: Ranks in all.
        host: Of this process.
        deadline_s: From now on, for an other rank; from the answer on, for rank 0.

    Raises:
        TimeoutError: Rank 0 gave no answer before the deadline.
    """
    store.set_timeout(timedelta(seconds=deadline_s))
    if ask is None:
        return _take(store, scope=scope, rank=rank, host=host, deadline_s=deadline_s)
    message = ask()
    return _give(store, message, scope=scope, ranks=range(1, world_size), deadline_s=deadline_s)


def _take(store: KeyValueStore, *, scope: str, rank: int, host: str, deadline_s: float) -> Told:
    word = uuid.uuid4().hex
    store.set(f"{scope}/ask/{rank}", f"{word}{host}")
    answer = f"{scope}/answer/{rank}/{word}"
    wait = _Wait(deadline_s)
    while not store.check([answer]):
        if not wait.again():
            msg = f"rank 0 gave no answer within {deadline_s:.0f} s"
            raise TimeoutError(msg)
    text = store.get(answer).decode()
    store.set(f"{scope}/taken/{rank}/{text[:_WORD_CHARS]}", "")
    return Told(message=text[_WORD_CHARS:].encode())


def _give(store: KeyValueStore, message: bytes, *, scope: str, ranks: range, deadline_s: float) -> Told:
    """Answer every rank, again where it was the word of an earlier round that was answered."""
    own = uuid.uuid4().hex
    waiting = dict.fromkeys(ranks, "")
    hosts: dict[int, str] = {}
    wait = _Wait(deadline_s)
    while waiting:
        for rank, answered in list(waiting.items()):
            if store.check([f"{scope}/taken/{rank}/{own}"]):
                del waiting[rank]
                continue
            word, host = _asked(store, f"{scope}/ask/{rank}")
            if word != answered:
                store.set(f"{scope}/answer/{rank}/{word}", f"{own}{message.decode()}")
                waiting[rank], hosts[rank] = word, host
        if waiting and not wait.again():
            break
    return Told(message=message, hosts=tuple(sorted(set(hosts.values()))), missing=tuple(waiting))


def _asked(store: KeyValueStore, key: str) -> tuple[str, str]:
    text = store.get(key).decode() if store.check([key]) else ""
    return text[:_WORD_CHARS], text[_WORD_CHARS:]


class _Wait:
    """Sleeps a little longer each time, until a deadline."""

    def __init__(self, deadline_s: float) -> None:
        self._ends_s = time.monotonic() + deadline_s
        self._next_s = _POLL_S

    def again(self) -> bool:
        """Sleep; say whether there is time for another look."""
        if time.monotonic() >= self._ends_s:
            return False
        time.sleep(self._next_s)
        self._next_s = min(_MAX_POLL_S, self._next_s * 1.2)
        return True

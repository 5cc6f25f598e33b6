"""Which rank of a worker this process is, and how its ranks talk (design §8).

They talk through the store that torchrun keeps for the processes it starts, by messages that have a
number and no answer: this module knows keys and bytes, `group_canary` what is said.
"""

import json
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from ckptguard.errors import CanaryError, ConfigError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

ANSWER_S: Final = 60.0
"""Silence of the store after which torchrun is taken to be gone."""
_CHUNK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """This process among those that torchrun started; alone, rank 0 of 1.

    Args:
        number: From 0.
        world_size: How many.
        local: Number on this machine: which of its devices.
        address: Host of rank 0, and of the store.
        port: Of the store.
        is_store_kept: torchrun keeps the store; else rank 0 does.
        session: Tells apart what earlier starts of the same job left in the store.
    """

    number: int = 0
    world_size: int = 1
    local: int = 0
    address: str = ""
    port: int = 0
    is_store_kept: bool = True
    session: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read what torchrun sets.

        Raises:
            ConfigError: Only a part of it is set, or it makes no sense.
        """
        if "WORLD_SIZE" not in environment:
            return cls()
        try:
            return cls(
                number=int(environment["RANK"]),
                world_size=int(environment["WORLD_SIZE"]),
                local=int(environment["LOCAL_RANK"]),
                address=environment["MASTER_ADDR"],
                port=int(environment["MASTER_PORT"]),
                is_store_kept=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
                session="/".join(environment.get(name, "") for name in _SESSION),
            )
        except (KeyError, ValueError) as error:
            msg = f"WORLD_SIZE is set, so torchrun should have set all it sets: {error}"
            raise ConfigError(msg) from error

    def device_of(self, device: str) -> str:
        """Return this rank's own device, where only a kind was asked for."""
        return f"cuda:{self.local}" if device == "cuda" and self.world_size > 1 else device


_SESSION: Final = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


class RankTalk:
    """Messages between the supervisors of one worker; each by a key that is written once.

    Args:
        store: Theirs alone.
        rank: This one.
    """

    def __init__(self, store: "Store", rank: Rank) -> None:
        self._store = store
        self.rank = rank

    @classmethod
    def open(cls, rank: Rank) -> Self:
        """Join the others.

        Raises:
            ConfigError: torchrun's store does not answer.
        """
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # noqa: PLC0415 - late

        try:
            store = TCPStore(
                rank.address,
                rank.port,
                is_master=rank.number == 0 and not rank.is_store_kept,
                timeout=timedelta(seconds=ANSWER_S),
                wait_for_workers=False,
            )
        except (RuntimeError, ValueError) as error:
            msg = f"the other ranks cannot be reached at {rank.address}:{rank.port}: {error}"
            raise ConfigError(msg) from error
        return cls(PrefixStore(f"ckptguard-worker/{rank.session}", store), rank)

    def tell(self, key: str, value: Mapping[str, Any]) -> None:
        """Write a message of any length: the pieces first, their number last."""
        packed = zlib.compress(json.dumps(value).encode(), level=1)
        pieces = range(0, len(packed), _CHUNK_BYTES)
        with _answering():
            for index, start in enumerate(pieces):
                piece: Any = packed[start : start + _CHUNK_BYTES]  # bytes do, whatever the stub says
                self._store.set(f"{key}/{index}", piece)
            self._store.set(key, str(len(pieces)))

    def has(self, key: str) -> bool:
        """Say whether a message is there."""
        with _answering():
            return bool(self._store.check([key]))

    def take(self, key: str) -> dict[str, Any] | None:
        """Read a message and forget its pieces; None if it is not there."""
        if not self.has(key):
            return None
        with _answering():
            names = [f"{key}/{index}" for index in range(int(self._store.get(key)))]
            packed = b"".join(self._store.get(name) for name in names)
        value: dict[str, Any] = json.loads(zlib.decompress(packed))
        return value

    def note(self, key: str, text: str) -> None:
        """Write a short text that may be written again."""
        with _answering():
            self._store.set(key, text)

    def noted(self, key: str) -> str | None:
        """Read a short text; None if nobody wrote it."""
        if not self.has(key):
            return None
        with _answering():
            return self._store.get(key).decode(errors="replace")

    def forget(self, keys: list[str]) -> None:
        """Delete what is no longer needed."""
        with _answering():
            for key in keys:
                self._store.delete_key(key)


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch's DistError family; no store, no worker
        msg = f"the other ranks of this worker are gone: {error}"
        raise CanaryError(msg) from error


def free_port(address: str) -> int:
    """Return a port that nobody listens at now.

    Args:
        address: Of this host, as the others know it.
    """
    family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port

"""The ranks of a job, and one message from rank 0 to all of them, by a deadline.

| the process | how the message goes |
| --- | --- |
| torch.distributed is initialised | over a gloo group of its own, whatever the job's backend is |
| started by torchrun, not initialised yet | over the store that `init_process_group` will use |
| alone | not at all; torch is not imported |
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ckptguard.errors import ConfigError, ServiceUnavailableError
from ckptguard.integrations.launch_store import share_over_store

_HOST_BYTES: Final = 64
_RANKS_OF_OTHERS: Final = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Set in processes that somebody starts side by side without torchrun."""

Ask = Callable[[], bytes]
"""Makes the message; runs on rank 0 alone, and does not raise."""


class RanksApartError(ServiceUnavailableError):
    """The ranks of a job did not come to one answer before the deadline."""

    code = "ranks_apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all ranks have.

    Args:
        message: From rank 0.
        rank: Of this process.
        hosts: Of all ranks, each once, sorted; on rank 0 only, empty elsewhere.
    """

    message: bytes
    rank: int = 0
    hosts: tuple[str, ...] = ()


def ask_once(ask: Ask, *, deadline_s: float, environment: Mapping[str, str] = os.environ) -> Shared:
    """Ask on rank 0, and give its message to all ranks; every rank of the job must call this.

    Args:
        ask: Makes the message, on rank 0.
        deadline_s: Longest time for a rank to wait for rank 0, and rank 0 for the others.
        environment: Of the process.

    Raises:
        RanksApartError: The deadline is over, or a rank is gone.
        ConfigError: There are more ranks, and nothing says how to reach them.
    """
    if _is_initialised():
        return _over_group(ask, deadline_s=deadline_s)
    world_size = _positive(environment, "WORLD_SIZE")
    if world_size > 1:
        return _before_group(ask, world_size=world_size, deadline_s=deadline_s, environment=environment)
    _require_alone(environment)
    return Shared(message=ask(), hosts=(socket.gethostname(),))


def _is_initialised() -> bool:
    """Say whether the job has a process group; a job that never imported torch has none."""
    distributed: Any = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def _positive(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _require_alone(environment: Mapping[str, str]) -> None:
    for name in _RANKS_OF_OTHERS:
        if _positive(environment, name) > 1:
            msg = (
                f"{name} says that there are more ranks, and each would get an answer of its own: call this "
                "after torch.distributed.init_process_group, or start the ranks with torchrun"
            )
            raise ConfigError(msg)


def _over_group(ask: Ask, *, deadline_s: float) -> Shared:
    from datetime import timedelta  # noqa: PLC0415 - with torch

    import torch.distributed as dist  # noqa: PLC0415 - the job has it: it is initialised

    with _translating():
        rank, world_size = dist.get_rank(), dist.get_world_size()
        if world_size == 1:
            return Shared(message=ask(), hosts=(socket.gethostname(),))
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=deadline_s))
        try:
            message = _broadcast(dist, group, ask() if rank == 0 else None)
            hosts = _gather_hosts(dist, group, world_size=world_size)
        finally:
            dist.destroy_process_group(group)
    return Shared(message=message, rank=rank, hosts=hosts if rank == 0 else ())


def _broadcast(dist: Any, group: Any, message: bytes | None) -> bytes:  # noqa: ANN401 - torch, late
    """Broadcast bytes as tensors: torch's object broadcast unpickles what it gets."""
    import torch  # noqa: PLC0415 - as above

    length = torch.tensor([0 if message is None else len(message)], dtype=torch.int64)
    dist.broadcast(length, src=0, group=group)
    content = (
        torch.empty(int(length), dtype=torch.uint8)
        if message is None
        else torch.frombuffer(bytearray(message), dtype=torch.uint8)
    )
    dist.broadcast(content, src=0, group=group)
    return bytes(content.tolist())


def _gather_hosts(dist: Any, group: Any, *, world_size: int) -> tuple[str, ...]:  # noqa: ANN401 - torch, late
    import torch  # noqa: PLC0415 - as above

    name = socket.gethostname().encode()[:_HOST_BYTES].ljust(_HOST_BYTES, b"\0")
    own = torch.frombuffer(bytearray(name), dtype=torch.uint8)
    names = [torch.empty_like(own) for _ in range(world_size)]
    dist.all_gather(names, own, group=group)
    texts = {bytes(name.tolist()).rstrip(b"\0").decode(errors="replace") for name in names}
    return tuple(sorted(texts))


_KEPT: Final[list[Any]] = []
"""Stores stay open: one that rank 0 serves is the one that `init_process_group` finds later."""


def _before_group(ask: Ask, *, world_size: int, deadline_s: float, environment: Mapping[str, str]) -> Shared:
    from datetime import timedelta  # noqa: PLC0415 - with torch

    from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415 - ranks that are to agree need its store

    with _translating():
        found = rendezvous("env://", timeout=timedelta(seconds=deadline_s))
        store, rank, _ = next(found)
        _KEPT.append(store)
        host = socket.gethostname()
        scope = f"ckptguard/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}/{len(_KEPT)}"
        told = share_over_store(
            store,
            ask if rank == 0 else None,
            scope=scope,
            rank=rank,
            world_size=world_size,
            host=host,
            deadline_s=deadline_s,
        )
    if told.missing:
        msg = f"ranks {', '.join(map(str, told.missing[:8]))} did not ask within {deadline_s:.0f} s"
        raise RanksApartError(msg)
    hosts = tuple(sorted({host, *told.hosts})) if rank == 0 else ()
    return Shared(message=told.message, rank=rank, hosts=hosts)


@contextmanager
def _translating() -> Iterator[None]:
    """Turn what torch raises when a rank is gone or late into one error.

    torch raises RuntimeError and subclasses of it (DistStoreError, DistNetworkError, DistBackendError).
    """
    try:
        yield
    except (RuntimeError, TimeoutError, ConnectionError) as error:
        first_line = str(error).partition("\n")[0][:300]
        msg = f"the ranks did not come to one answer: {first_line or type(error).__name__}"
        raise RanksApartError(msg) from error

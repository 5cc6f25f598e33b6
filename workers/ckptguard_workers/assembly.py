"""Put a worker together and run it, alone or as one rank of many."""

import os
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ckptguard.canary.parent import die_with_parent
from ckptguard.cli.log_lines import STARTED
from ckptguard.client.address import Address
from ckptguard.clock import Clock, SystemClock
from ckptguard_workers.capabilities import capabilities_of
from ckptguard_workers.drain import DRAIN_S, Drain
from ckptguard_workers.environment import forget_secrets, hide_process
from ckptguard_workers.group_canary import GroupCanary, follow
from ckptguard_workers.loop import POLL_S, LeaseLoop, Worker
from ckptguard_workers.machine_stores import MachineStore
from ckptguard_workers.ranks import Rank, RankTalk
from ckptguard_workers.service_calls import ServiceCalls
from ckptguard_workers.showing import Showing, showing_nobody
from ckptguard_workers.validation import Machine
from ckptguard_workers.warm_canary import WarmCanary

_LOG: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Everything that a worker is told when it starts.

    Args:
        address: Of the service, with the token.
        stores: Of this machine.
        name: Unique; None: this host and process.
        device: torch device; `cuda` under torchrun is each rank's own.
        jobs: Files read at the same time; None: as the service says.
        window_bytes: Read buffers of one process; None: as the service says.
        memory_bytes: Address space of the validation child; None: not bounded.
        drain_s: Seconds for the validation at hand once a stop is asked for.
        poll_s: How long one call waits for work.
        showing: Shows a person how each validation fares.
    """

    address: Address
    stores: Mapping[str, MachineStore]
    name: str | None = None
    device: str = "cpu"
    jobs: int | None = None
    window_bytes: int | None = None
    memory_bytes: int | None = None
    drain_s: float = DRAIN_S
    poll_s: float = POLL_S
    showing: Showing = showing_nobody


def run_worker(settings: WorkerSettings) -> None:
    """Work until a stop is asked for. Forgets every secret of the environment first.

    Raises:
        CanaryError: No child can be started here.
        ConfigError: Under torchrun, the other ranks cannot be reached.
    """
    rank = Rank.of(os.environ)
    forget_secrets(os.environ)
    hide_process()
    if rank.world_size > 1:
        die_with_parent(os.getppid())  # torchrun, which keeps the store by which the ranks talk
    clock = SystemClock()
    drain = Drain(clock, drain_s=settings.drain_s)
    with drain.on_signals():
        if rank.number == 0:
            _lead(settings, rank, drain, clock)
        else:
            follow(RankTalk.open(rank), _machine(settings, rank), drain=drain, clock=clock)


def _machine(settings: WorkerSettings, rank: Rank) -> Machine:
    return Machine(
        stores=settings.stores,
        device=rank.device_of(settings.device),
        jobs=settings.jobs,
        window_bytes=settings.window_bytes,
        memory_bytes=settings.memory_bytes,
    )


def _lead(settings: WorkerSettings, rank: Rank, drain: Drain, clock: Clock) -> None:
    canary = WarmCanary()
    machine = _machine(settings, rank)
    group = None
    if rank.world_size > 1:
        group = GroupCanary(RankTalk.open(rank), canary, device=machine.device)
    calls = ServiceCalls(settings.address)
    worker = Worker(
        name=settings.name or f"{socket.gethostname()}-{os.getpid()}",
        capabilities=capabilities_of(
            stores=settings.stores, device=settings.device, world_size=rank.world_size
        ),
        machine=machine,
        canary_of=group.of if group is not None else lambda _: canary,
        showing=settings.showing,
    )
    chance = random.Random()  # noqa: S311 - jitter of waits, no secret
    loop = LeaseLoop(worker, calls, drain=drain, clock=clock, chance=chance, poll_s=settings.poll_s)
    try:
        canary.warm()
        _LOG.info(STARTED, worker=worker.name, service=settings.address.url, stores=sorted(settings.stores))
        loop.run()
    finally:
        canary.close()
        calls.close()
        if group is not None:
            group.dismiss()

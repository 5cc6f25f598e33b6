"""A lean HTTP/1.1 client under load: prepared requests over kept connections, latencies in seconds.

It measures from the time at which a request was due, so that a server that stalls is charged for every
request that it kept from being sent.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where an API process listens."""

    host: str
    port: int


@dataclass(kw_only=True)
class Load:
    """What came of a measurement.

    Args:
        latencies_s: Of each request, from when it was due to the last byte of its answer.
        seconds: How long it took in all.
        statuses: How many answers had which status.
    """

    latencies_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Requests answered per second."""
        return len(self.latencies_s) / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Return the latency, in milliseconds, that so many percent stay within."""
        ordered = sorted(self.latencies_s)
        return 1e3 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Connection(asyncio.Protocol):
    """One kept connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        """Finish the request when its answer is complete."""
        self._received += data
        head_end = self._received.find(_END_OF_HEAD)
        if head_end < 0:
            return
        begin = self._received.find(_LENGTH, 0, head_end) + len(_LENGTH)
        length = int(self._received[begin : self._received.find(b"\r", begin)])
        if len(self._received) >= head_end + len(_END_OF_HEAD) + length:
            status = int(self._received[9:12])
            self._received.clear()
            assert self._answer is not None
            self._answer.set_result(status)

    async def ask(self, request: bytes) -> int:
        """Send a prepared request and return the status of its answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


async def connect(address: Address) -> Connection:
    """Return a new connection."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, address.host, address.port)
    return connection


def prepare(path: str, token: str) -> bytes:
    """Return the bytes of a GET."""
    head = f"GET {path} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {token}\r\n\r\n"
    return head.encode("ascii")


async def drive(
    addresses: Sequence[Address],
    requests: Sequence[bytes],
    *,
    seconds: float,
    num_connections: int,
    per_s: float | None,
    seed: int,
) -> Load:
    """Send requests, chosen by chance, for some seconds.

    Args:
        addresses: Connections are spread over them.
        requests: To choose from.
        seconds: How long.
        num_connections: Requests under way at most.
        per_s: At this rate; None: each connection as fast as it is answered.
        seed: Of the choice.
    """
    load = Load()
    connections = [await connect(addresses[number % len(addresses)]) for number in range(num_connections)]
    began = time.perf_counter()
    due = _due_times(began, per_s)
    choice = random.Random(seed)  # noqa: S311 - a benchmark's choice

    async def one_after_the_other(connection: Connection) -> None:
        while (due_at := due()) < began + seconds:
            pause = due_at - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            status = await connection.ask(choice.choice(requests))
            load.latencies_s.append(time.perf_counter() - due_at)
            load.statuses[status] = load.statuses.get(status, 0) + 1

    await asyncio.gather(*map(one_after_the_other, connections))
    load.seconds = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return load


def _due_times(began: float, per_s: float | None) -> Callable[[], float]:
    if per_s is None:
        return time.perf_counter
    numbers = iter(range(1 << 62))
    return lambda: began + next(numbers) / per_s

"""The client for event loops: sockets, and nothing else."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Self, TypeVar

import httpx

from ckptguard.client.address import Address, find_service
from ckptguard.client.call import Call, Page, page_after
from ckptguard.client.exchange import (
    DEFAULT_DEADLINE_S,
    Body,
    Deadline,
    http_options,
    prepare,
    read_answer,
    retrying,
    translating_http_errors,
)
from ckptguard.client.methods import Methods, SendsLater
from ckptguard.client.sse import EventParser, ServerEvent, Thread
from ckptguard.client.streaming import raise_for_stream, stream_request
from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import ServiceUnavailableError

T = TypeVar("T")


class AsyncClient(Methods, SendsLater):
    """Asks the service from one event loop; the methods of `Client`, awaitable.

    Args:
        address: Whom, and as whom.
        deadline_s: Of one call with all its tries, in seconds; a wait that it asks for comes on top.
        clock: Tells time; waiting is the event loop's.
    """

    def __init__(
        self, address: Address, *, deadline_s: float = DEFAULT_DEADLINE_S, clock: Clock | None = None
    ) -> None:
        self.address = address
        self._deadline_s = deadline_s
        self._clock = clock or SystemClock()
        self._http = httpx.AsyncClient(**http_options(address))

    @classmethod
    def from_environment(cls, *, deadline_s: float = DEFAULT_DEADLINE_S) -> Self:
        """Return a client of the service that this process is told of (`address.find_service`).

        Raises:
            ConfigError: No service is known, or its address or token cannot be used.
        """
        return cls(find_service(os.environ, folder=Path.cwd()), deadline_s=deadline_s)

    def within(self, deadline_s: float) -> Self:
        """Return a client with another deadline that shares the connections of this one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _deadline_s=deadline_s)
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.url})"

    async def aclose(self) -> None:
        """End all connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Make a call, again while that may help; as `Client.send`."""
        deadline = Deadline(self._clock, call, self._deadline_s)
        async for attempt in retrying(call, deadline):
            with attempt:
                return await self._ask(call, deadline)
        raise AssertionError  # the loop returns or raises

    async def _ask(self, call: Call[T], deadline: Deadline) -> T:
        timeout = deadline.timeout()
        asked = prepare(call, self.address, hold_s=deadline.hold_left_s)
        body = Body(deadline)
        with translating_http_errors(self.address):
            async with self._http.stream(
                asked.method, asked.url, headers=asked.headers, content=asked.content, timeout=timeout
            ) as response:
                async for chunk in response.aiter_bytes():
                    body.take(chunk)
        return read_answer(call, response, body.finished())

    async def pages(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        """Yield the items of a list, page by page; each page is a call of its own, and may be empty."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.send(call if not cursor else page_after(call, cursor))
            for item in page.items:
                yield item
            cursor = page.next if page.next != cursor else None

    async def stream(
        self, *, run: str | None = None, patience_s: float | None = None
    ) -> AsyncGenerator[ServerEvent, None]:
        """Yield events as they happen; as `Client.stream`."""
        thread = Thread()
        lost_s = self._clock.monotonic_s()
        while True:
            try:
                async with aclosing(self._connection(run, thread)) as events:
                    async for event in events:
                        thread.saw(event)
                        yield event
                        lost_s = self._clock.monotonic_s()
            except ServiceUnavailableError:
                if patience_s is not None and self._clock.monotonic_s() - lost_s > patience_s:
                    raise
            await asyncio.sleep(thread.next_wait_s())

    async def _connection(self, run: str | None, thread: Thread) -> AsyncGenerator[ServerEvent, None]:
        asked, timeout = stream_request(self.address, run, thread)
        parser = EventParser()
        with translating_http_errors(self.address):
            async with self._http.stream(
                asked.method, asked.url, headers=asked.headers, timeout=timeout
            ) as response:
                if not response.is_success:
                    raise_for_stream(response, await response.aread())
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        yield event

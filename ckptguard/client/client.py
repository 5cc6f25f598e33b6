"""The client for threads: sockets, and nothing else."""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
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
from ckptguard.client.methods import Methods, Sends
from ckptguard.client.sse import EventParser, ServerEvent, Thread
from ckptguard.client.streaming import raise_for_stream, stream_request
from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import ServiceUnavailableError

T = TypeVar("T")


class Client(Methods, Sends):
    """Asks the service; safe to share between threads. A context manager.

    Calls that do no more when made twice are made again while the service is away, until the
    deadline; redirects are never followed.

    Args:
        address: Whom, and as whom.
        deadline_s: Of one call with all its tries, in seconds; a wait that it asks for comes on top.
        clock: Tells time.
    """

    def __init__(
        self, address: Address, *, deadline_s: float = DEFAULT_DEADLINE_S, clock: Clock | None = None
    ) -> None:
        self.address = address
        self._deadline_s = deadline_s
        self._clock = clock or SystemClock()
        self._http = httpx.Client(**http_options(address))

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address.url})"

    def close(self) -> None:
        """End all connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Make a call, again while that may help.

        Raises:
            ServiceUnavailableError: No answer until the deadline.
            CkptGuardError: What the service answered.
        """
        deadline = Deadline(self._clock, call, self._deadline_s)
        for attempt in retrying(call, deadline):
            with attempt:
                return self._ask(call, deadline)
        raise AssertionError  # the loop returns or raises

    def send_once(self, call: Call[T]) -> T:
        """Make a call, and not again: for callers who come back by themselves, and who must not chatter.

        Raises:
            ServiceUnavailableError: No answer until the deadline.
            CkptGuardError: What the service answered.
        """
        return self._ask(call, Deadline(self._clock, call, self._deadline_s))

    def _ask(self, call: Call[T], deadline: Deadline) -> T:
        timeout = deadline.timeout()
        asked = prepare(call, self.address, hold_s=deadline.hold_left_s)
        body = Body(deadline)
        with (
            translating_http_errors(self.address),
            self._http.stream(
                asked.method, asked.url, headers=asked.headers, content=asked.content, timeout=timeout
            ) as response,
        ):
            for chunk in response.iter_bytes():
                body.take(chunk)
        return read_answer(call, response, body.finished())

    def pages(self, call: Call[Page[T]]) -> Iterator[T]:
        """Yield the items of a list, page by page; each page is a call of its own, and may be empty."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.send(call if not cursor else page_after(call, cursor))
            yield from page.items
            cursor = page.next if page.next != cursor else None

    def stream(self, *, run: str | None = None, patience_s: float | None = None) -> Iterator[ServerEvent]:
        """Yield events as they happen, of a run or of the project; connects again, and misses none.

        Args:
            run: Its name; None: all of the project.
            patience_s: Give up when no connection was made for so long; None: never.

        Raises:
            ServiceUnavailableError: `patience_s` is over.
            CkptGuardError: The service refuses.
        """
        thread = Thread()
        lost_s = self._clock.monotonic_s()
        while True:
            try:
                with closing(self._connection(run, thread)) as events:
                    for event in events:
                        thread.saw(event)
                        yield event
                        lost_s = self._clock.monotonic_s()
            except ServiceUnavailableError:
                if patience_s is not None and self._clock.monotonic_s() - lost_s > patience_s:
                    raise
            self._clock.sleep(thread.next_wait_s())

    def _connection(self, run: str | None, thread: Thread) -> Generator[ServerEvent, None, None]:
        asked, timeout = stream_request(self.address, run, thread)
        parser = EventParser()
        with (
            translating_http_errors(self.address),
            self._http.stream(asked.method, asked.url, headers=asked.headers, timeout=timeout) as response,
        ):
            if not response.is_success:
                raise_for_stream(response, response.read())
            for chunk in response.iter_bytes():
                yield from parser.feed(chunk)

"""The methods of both clients, declared once: a method is a builder of calls, and the client sends it."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, overload

from ckptguard.client import calls, operator_calls
from ckptguard.client.call import Call, Page

P = ParamSpec("P")
T = TypeVar("T")


class Sends:
    """A client whose methods give values."""

    def send(self, call: Call[T]) -> T:
        """Make a call."""
        raise NotImplementedError

    def pages(self, call: Call[Page[T]]) -> Iterator[T]:
        """Yield the items of a list."""
        raise NotImplementedError


class SendsLater:
    """A client whose methods give awaitables."""

    async def send(self, call: Call[T]) -> T:
        """Make a call."""
        raise NotImplementedError

    def pages(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        """Yield the items of a list."""
        raise NotImplementedError


class Method(Generic[P, T]):
    """A method made of a builder: gives a value on `Sends`, an awaitable on `SendsLater`.

    Args:
        build: Makes the call from the method's arguments; its docstring is the method's.
    """

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: Sends, owner: type | None = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: SendsLater, owner: type | None = None) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, owner: type | None = None) -> Callable[P, Call[T]]: ...
    def __get__(self, client: Any, owner: type | None = None) -> Any:
        """Bind to a client; on the class itself, the builder."""
        del owner
        if client is None:
            return self._build

        @functools.wraps(self._build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - a value, or an awaitable of one
            return client.send(self._build(*args, **kwargs))

        return method


class ListMethod(Generic[P, T]):
    """A method that iterates over a list, page by page: an iterator, or an asynchronous one.

    Args:
        build: Makes the call for the first page.
    """

    def __init__(self, build: Callable[P, Call[Page[T]]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: Sends, owner: type | None = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: SendsLater, owner: type | None = None) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type | None = None) -> Callable[P, Call[Page[T]]]: ...
    def __get__(self, client: Any, owner: type | None = None) -> Any:
        """Bind to a client; on the class itself, the builder."""
        del owner
        if client is None:
            return self._build

        @functools.wraps(self._build)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - one of two kinds of iterator
            return client.pages(self._build(*args, **kwargs))

        return method


class Methods:
    """Everything that a client can ask; the arguments are those of the builders."""

    create_run = Method(calls.create_run)
    change_run = Method(calls.change_run)
    announce = Method(calls.announce)
    register = Method(calls.register)
    report_restart = Method(calls.report_restart)
    resume_target = Method(calls.resume_target)

    runs = ListMethod(operator_calls.runs)
    run = Method(operator_calls.run)
    checkpoints = ListMethod(operator_calls.checkpoints)
    checkpoint = Method(operator_calls.checkpoint)
    manifest = Method(operator_calls.manifest)
    validation = Method(operator_calls.validation)
    findings = ListMethod(operator_calls.findings)
    evidence = ListMethod(operator_calls.evidence)
    request_validation = Method(operator_calls.request_validation)
    hold = Method(operator_calls.hold)
    release = Method(operator_calls.release)
    mark_deleted = Method(operator_calls.mark_deleted)
    note = Method(operator_calls.note)
    events = ListMethod(operator_calls.events)
    workers = ListMethod(operator_calls.workers)
    stores = ListMethod(operator_calls.stores)
    tokens = ListMethod(operator_calls.tokens)
    create_token = Method(operator_calls.create_token)
    revoke_token = Method(operator_calls.revoke_token)
    readiness = Method(operator_calls.readiness)

"""Fakes that pass the same contract as the real thing, with faults that a test scripts."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TypeVar

from ckptguard.errors import AccessDeniedError, StoreError, StoreUnavailableError
from ckptguard.storage.forwarding import ForwardingReader
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store

T = TypeVar("T")


class FakeClock:
    """A clock that moves only when it is told to, or when somebody sleeps on it.

    Args:
        start: Wall-clock time at the beginning.
        on_sleep: Called after each sleep, with its seconds: what happens meanwhile.
    """

    def __init__(
        self,
        start: datetime = datetime(2026, 1, 1, tzinfo=UTC),
        on_sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._on_sleep = on_sleep
        self.sleeps_s: list[float] = []

    def now(self) -> datetime:
        """Return the start plus all that passed."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic_s(self) -> float:
        """Return all that passed, in seconds."""
        return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.advance(seconds)
        self.sleeps_s.append(seconds)
        if self._on_sleep is not None:
            self._on_sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            msg = f"time does not go back, not even {seconds} s"
            raise ValueError(msg)
        self._elapsed_s += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenObject:
    """An object that the first `walks` listings leave out; asked for by name it is there."""

    path: str
    walks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRead:
    """A read across byte `at_byte` fails `times` times, after the bytes before it arrived."""

    path: str
    at_byte: int
    times: int = 1
    error: type[StoreError] = StoreUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedRead:
    """The first `times` reads of byte `offset` deliver it with one bit turned."""

    path: str
    offset: int
    bit: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortStat:
    """The first `times` looks, by `stat` or a listing, say `missing_bytes` too few."""

    path: str
    missing_bytes: int = 1
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRequest:
    """The first `times` requests of a kind fail; a walk after `after` objects.

    Args:
        operation: `walk`, `escapes`, `stat` or `open`.
        path: Only about this path or prefix; None for any.
        after: Objects that a walk yields before it fails.
    """

    operation: str
    path: str | None = None
    times: int = 1
    after: int = 0
    error: type[StoreError] = StoreUnavailableError


Fault = HiddenObject | BrokenRead | FlippedRead | ShortStat | BrokenRequest
F = TypeVar("F", HiddenObject, BrokenRead, FlippedRead, ShortStat, BrokenRequest)


@dataclass(slots=True)
class _Ledger:
    """How often each fault struck, and each request was made; any thread."""

    struck: Counter[Fault] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def strikes(self, fault: Fault, times: int) -> bool:
        with self.lock:
            self.struck[fault] += 1
            return self.struck[fault] <= times

    def note(self, operation: str) -> None:
        with self.lock:
            self.requests[operation] += 1


class FaultyStore:
    """Another store, with scripted faults; each strikes a stated number of times, then never again.

    Args:
        inner: The healthy store.
        faults: What goes wrong.
        denied: Paths, or prefixes of paths, that are refused for ever.
    """

    def __init__(self, inner: Store, *faults: Fault, denied: frozenset[str] = frozenset()) -> None:
        self._inner = inner
        self._faults = faults
        self._denied = denied
        self._ledger = _Ledger()

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    @property
    def requests(self) -> Counter[str]:
        """How often each operation was asked for: `walk`, `escapes`, `stat`, `open`, `read`."""
        return Counter(self._ledger.requests)

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Yield as the inner store, less what is hidden, until a scripted failure."""
        hidden = {fault.path for fault in self._of(HiddenObject) if self._ledger.strikes(fault, fault.walks)}
        for stat in self._broken_off("walk", prefix, self._inner.walk(prefix)):
            self._require_allowed(stat.path)
            if stat.path not in hidden:
                yield self._shortened(stat)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield as the inner store, until a scripted failure."""
        return self._broken_off("escapes", prefix, self._inner.escapes(prefix))

    def stat(self, path: str) -> ObjectStat:
        """Describe one object, or fail as scripted."""
        self._request("stat", path)
        return self._shortened(self._inner.stat(path))

    def open(self, path: str) -> RangeReader:
        """Open one object whose reads fail as scripted."""
        self._request("open", path)
        faults = [fault for fault in self._faults if fault.path == path]
        return _FaultyReader(self._inner.open(path), path, faults, self._ledger)

    def _of(self, kind: type[F]) -> list[F]:
        return [fault for fault in self._faults if isinstance(fault, kind)]

    def _request(self, operation: str, path: str) -> None:
        self._ledger.note(operation)
        self._require_allowed(path)
        for fault in self._broken(operation, path):
            if self._ledger.strikes(fault, fault.times):
                msg = f"scripted failure of {operation}"
                raise fault.error(msg, key=path)

    def _broken_off(self, operation: str, prefix: str, things: Iterator[T]) -> Iterator[T]:
        self._ledger.note(operation)
        self._require_allowed(prefix)
        striking = [
            fault for fault in self._broken(operation, prefix) if self._ledger.strikes(fault, fault.times)
        ]
        if not striking:
            yield from things
            return
        yield from islice(things, striking[0].after)
        msg = f"scripted failure of {operation}"
        raise striking[0].error(msg, key=prefix)

    def _broken(self, operation: str, path: str) -> list[BrokenRequest]:
        requests = self._of(BrokenRequest)
        return [fault for fault in requests if fault.operation == operation and fault.path in (None, path)]

    def _shortened(self, stat: ObjectStat) -> ObjectStat:
        for fault in self._of(ShortStat):
            if fault.path == stat.path and self._ledger.strikes(fault, fault.times):
                return replace(stat, length_bytes=max(0, stat.length_bytes - fault.missing_bytes))
        return stat

    def _require_allowed(self, path: str) -> None:
        if any(path == denied or path.startswith(f"{denied}/") for denied in self._denied):
            msg = "access denied, as scripted"
            raise AccessDeniedError(msg, key=path)


class _FaultyReader(ForwardingReader):
    """One object whose reads fail as scripted."""

    def __init__(self, inner: RangeReader, path: str, faults: list[Fault], ledger: _Ledger) -> None:
        super().__init__(inner)
        self._path = path
        self._faults = faults
        self._ledger = ledger

    def readinto(self, buffer: memoryview, offset: int) -> int:
        self._ledger.note("read")
        for fault in self._faults:
            if isinstance(fault, BrokenRead) and 0 <= fault.at_byte - offset < len(buffer):
                self._break(fault, buffer, offset)
        got = self._inner.readinto(buffer, offset)
        for fault in self._faults:
            if isinstance(fault, FlippedRead) and 0 <= fault.offset - offset < got:
                self._flip(fault, buffer, offset)
        return got

    def _break(self, fault: BrokenRead, buffer: memoryview, offset: int) -> None:
        if self._ledger.strikes(fault, fault.times):
            self._inner.readinto(buffer[: fault.at_byte - offset], offset)
            msg = f"scripted failure at byte {fault.at_byte}"
            raise fault.error(msg, key=self._path)

    def _flip(self, fault: FlippedRead, buffer: memoryview, offset: int) -> None:
        if self._ledger.strikes(fault, fault.times):
            buffer[fault.offset - offset] ^= 1 << fault.bit

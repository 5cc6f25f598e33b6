"""Asking again: every request of a store, with bounded attempts and time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from ckptguard.errors import StoreError, StoreUnavailableError
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how long, the same request is made.

    Args:
        attempts: In all, the first included.
        timeout_s: No attempt starts later than this after the second one.
        wait_initial_s: Before the second attempt; doubled for each one after it.
        wait_max_s: Between two attempts, at most.
        wait_jitter_s: Added to each wait, at most, by chance.
    """

    attempts: int = 5
    timeout_s: float = 120.0
    wait_initial_s: float = 0.2
    wait_max_s: float = 10.0
    wait_jitter_s: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a policy that never asks."""
        if self.attempts < 1:
            msg = f"attempts must be at least 1, not {self.attempts}"
            raise ValueError(msg)

    def call(self, request: Callable[[], T]) -> T:
        """Make a request until it is answered, or this policy ends.

        Raises:
            StoreError: The last one, if retryable; the first other one.
        """
        try:
            return request()
        except StoreError as error:
            if not error.is_retryable:
                raise
            return self._call_again(request, error)

    def _call_again(self, request: Callable[[], T], first: StoreError) -> T:
        import stamina  # noqa: PLC0415 - 20 ms of imports that an answered request never needs

        attempts = stamina.retry_context(
            on=_is_retryable,
            attempts=self.attempts,
            timeout=self.timeout_s,
            wait_initial=self.wait_initial_s,
            wait_max=self.wait_max_s,
            wait_jitter=self.wait_jitter_s,
        )
        for attempt in attempts:
            with attempt:
                if attempt.num == 1:  # already made; stamina then waits before the second
                    raise first
                return request()
        raise first


DEFAULT_RETRY = RetryPolicy()


class RetryingStore:
    """A store each of whose requests is made again while the error is retryable.

    Args:
        inner: The store that is asked.
        policy: Bounds.
    """

    def __init__(self, inner: Store, policy: RetryPolicy = DEFAULT_RETRY) -> None:
        self._inner = inner
        self._policy = policy

    @property
    def inner(self) -> Store:
        """The store that is asked."""
        return self._inner

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Yield every object once; a walk that breaks off starts anew behind what was yielded."""
        return self._resumed(lambda: self._inner.walk(prefix), lambda stat: stat.path)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield as the inner store does, resumed like `walk`."""
        return self._resumed(lambda: self._inner.escapes(prefix), lambda path: path)

    def stat(self, path: str) -> ObjectStat:
        """Describe one object."""
        return self._policy.call(lambda: self._inner.stat(path))

    def open(self, path: str) -> RangeReader:
        """Open one object; its reads are retried too."""
        return RetryingReader(self._inner, path, self._policy)

    def _resumed(self, start: Callable[[], Iterator[T]], name: Callable[[T], str]) -> Iterator[T]:
        walk = _ResumingWalk(start, name, max_failures=self._policy.attempts)
        while (thing := self._policy.call(walk.advance)) is not None:
            yield thing


class _ResumingWalk(Generic[T]):
    """An iteration that starts anew after a failure and leaves out what it gave before.

    Args:
        start: Begins one iteration.
        name: Tells two things apart.
        max_failures: In the whole iteration, however far each restart gets.
    """

    def __init__(self, start: Callable[[], Iterator[T]], name: Callable[[T], str], max_failures: int) -> None:
        self._start = start
        self._name = name
        self._failures_left = max_failures
        self._given: set[str] = set()
        self._running: Iterator[T] | None = None
        self._last: StoreError | None = None

    def advance(self) -> T | None:
        """Return the next thing not given before; None at the end.

        Raises:
            StoreError: This iteration failed; the next call begins another.
        """
        if self._last is not None and self._failures_left <= 0:
            raise self._last
        if self._running is None:
            self._running = self._start()
        try:
            thing = next((thing for thing in self._running if self._name(thing) not in self._given), None)
        except StoreError as error:
            self._running, self._last = None, error
            self._failures_left -= 1
            raise
        if thing is not None:
            self._given.add(self._name(thing))
        return thing


class RetryingReader:
    """One object, opened again after each failed read, as long as it is still the same version.

    Args:
        store: Where it stands.
        path: Of the object.
        policy: Bounds for each read.
    """

    def __init__(self, store: Store, path: str, policy: RetryPolicy) -> None:
        self._store = store
        self._path = path
        self._policy = policy
        self._reader = policy.call(lambda: store.open(path))
        self._version = version_of(self._reader)
        self._is_broken = False
        self._is_closed = False

    @property
    def version(self) -> str | None:
        """Of the object when it was first opened, where the inner reader knows."""
        return self._version

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset`; a failed read is made again from the same offset.

        Raises:
            StoreUnavailableError: No answer within the policy, or the object is another
                one since it was opened: two versions are never read as one.
            ObjectNotFoundError, AccessDeniedError: As the store answered.
        """
        return self._policy.call(lambda: self._read_once(buffer, offset))

    def will_need(self, offset: int, length_bytes: int) -> None:
        """Pass the hint on."""
        self._reader.will_need(offset, length_bytes)

    def forget(self, offset: int, length_bytes: int) -> None:
        """Pass the request on."""
        self._reader.forget(offset, length_bytes)

    def close(self) -> None:
        """Close; idempotent."""
        self._is_closed = True
        self._reader.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _read_once(self, buffer: memoryview, offset: int) -> int:
        if self._is_closed:
            msg = f"read of a closed reader: {self._path}"
            raise ValueError(msg)
        if self._is_broken:
            self._open_again()
        try:
            return self._reader.readinto(buffer, offset)
        except StoreError as error:
            self._is_broken = error.is_retryable
            raise

    def _open_again(self) -> None:
        reader = self._store.open(self._path)
        version = version_of(reader)
        if version != self._version:
            reader.close()
            msg = f"changed while being read, from version {self._version} to {version}"
            raise StoreUnavailableError(msg, key=self._path)
        self._reader.close()
        self._reader, self._is_broken = reader, False


def version_of(reader: RangeReader) -> str | None:
    """Return the version that a reader reads, where it can tell."""
    version: str | None = getattr(reader, "version", None)
    return version


def _is_retryable(error: Exception) -> bool:
    return isinstance(error, StoreError) and error.is_retryable

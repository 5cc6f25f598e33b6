"""What both clients share around a socket: headers, times, bounds, retries. No socket is opened here."""

import gzip
import json
import platform
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

import httpx
import stamina

from ckptguard import __version__
from ckptguard.client.address import Address
from ckptguard.client.call import MAX_HOLD_S, Call
from ckptguard.client.decode import parse_json
from ckptguard.client.problems import error_of_answer
from ckptguard.clock import Clock
from ckptguard.errors import ServiceError, ServiceUnavailableError

T = TypeVar("T")

DEFAULT_DEADLINE_S: Final = 30.0
"""Of one call with all its tries; a wait that the call asks for comes on top."""
MAX_ANSWER_BYTES: Final = 256 << 20
COMPRESS_FROM_BYTES: Final = 8 << 10
_CONNECT_S: Final = 5.0
_TRY_S: Final = 10.0
"""Silence after which a try is given up, on top of the wait that it asked for."""
_MIN_TRY_S: Final = 0.05
_WORTHWHILE_S: Final = 0.25
"""With less time than this left, no further try is made: it would only hide why the last one failed."""
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
_JITTER_S: Final = 0.5
STREAM_SILENCE_S: Final = 60.0
"""A stream without even a comment for so long is dead."""


class Deadline:
    """The moment at which a call must have ended.

    Args:
        clock: Tells time.
        call: Its wait comes on top.
        deadline_s: For everything else.
    """

    def __init__(self, clock: Clock, call: Call[Any], deadline_s: float) -> None:
        self._clock = clock
        self._hold_s = min(call.hold_s, MAX_HOLD_S)
        self._started_s = clock.monotonic_s()
        self._total_s = deadline_s + self._hold_s
        self._last_error: ServiceUnavailableError | None = None

    def note(self, error: ServiceUnavailableError) -> None:
        """Keep why the last try failed; what the service remembered in any of them is kept too."""
        if error.last_known is None and self._last_error is not None:
            error.last_known = self._last_error.last_known
        self._last_error = error

    @property
    def passed_s(self) -> float:
        """Seconds since the call began."""
        return self._clock.monotonic_s() - self._started_s

    @property
    def left_s(self) -> float:
        """Seconds until it must have ended; 0 when it must end now."""
        return max(0.0, self._total_s - self.passed_s)

    @property
    def total_s(self) -> float:
        """Seconds from beginning to end."""
        return self._total_s

    @property
    def hold_left_s(self) -> float:
        """Seconds that the service may still wait: a call made again waits for the rest only."""
        return max(0.0, self._hold_s - self.passed_s)

    def timeout(self) -> httpx.Timeout:
        """Return the bounds of the next try.

        Raises:
            ServiceUnavailableError: There is no time for one; the error of the last try, if there was one.
        """
        left_s = self.left_s
        if left_s <= (0.0 if self._last_error is None else _WORTHWHILE_S):
            msg = f"no answer from the service within {self._total_s:g} s"
            raise self._last_error or ServiceUnavailableError(msg)
        try_s = max(_TRY_S, (self._total_s - self._hold_s) / 3) + self.hold_left_s
        read_s = max(_MIN_TRY_S, min(left_s, try_s))
        return httpx.Timeout(read_s, connect=max(_MIN_TRY_S, min(left_s, _CONNECT_S)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request as it is sent.

    Args:
        url: Whole, with its query.
        headers: With the token: never shown.
        content: Body; None: none.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None

    def __repr__(self) -> str:
        return f"Prepared({self.method} {self.url})"


def prepare(call: Call[Any], address: Address, *, hold_s: float) -> Prepared:
    """Return the request of one try.

    Args:
        call: What is asked.
        address: Whom.
        hold_s: How long the service may wait, now.
    """
    query = {name: _query_text(value) for name, value in call.query.items() if value is not None}
    if call.hold_s > 0:
        query["wait_s"] = f"{hold_s:.3f}"
    headers = headers_for(address)
    content = None
    if call.body is not None:
        content = json.dumps(call.body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        headers["Content-Type"] = "application/json"
        if len(content) >= COMPRESS_FROM_BYTES:
            content = gzip.compress(content, compresslevel=1, mtime=0)
            headers["Content-Encoding"] = "gzip"
    url = f"{address.url}{call.path}"
    return Prepared(
        method=call.method,
        url=f"{url}?{httpx.QueryParams(query)}" if query else url,
        headers=headers,
        content=content,
    )


def headers_for(address: Address) -> dict[str, str]:
    """Return the headers of every request."""
    headers = {
        "Authorization": f"Bearer {address.token.reveal()}",
        "Accept": "application/json",
        "User-Agent": f"ckptguard/{__version__} python/{platform.python_version()}",
    }
    if address.project is not None:
        headers["Ckptguard-Project"] = address.project
    return headers


def _query_text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def http_options(address: Address) -> dict[str, Any]:
    """Return the arguments of both of httpx's clients.

    Proxies of the environment are used for `https://` only: to them, the token of a plain
    request would be readable. A plain client gets a context that trusts nobody, because to load
    the authorities that it never asks would take 0.1 s.
    """
    is_tls = address.url.startswith("https://")
    return {
        "follow_redirects": False,
        "trust_env": is_tls,
        "verify": True if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "limits": httpx.Limits(max_connections=20, max_keepalive_connections=4),
    }


class Body:
    """Collects the body of an answer, bounded in length and time.

    Args:
        deadline: A slow answer is given up at it.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._data = bytearray()

    def take(self, chunk: bytes) -> None:
        """Add what came.

        Raises:
            ServiceError: Longer than any answer.
            ServiceUnavailableError: Too slow.
        """
        self._data += chunk
        if len(self._data) > MAX_ANSWER_BYTES:
            msg = f"the service's answer is longer than {MAX_ANSWER_BYTES} bytes"
            raise ServiceError(msg)
        if self._deadline.left_s <= 0:
            msg = f"the service's answer took longer than {self._deadline.total_s:g} s"
            raise ServiceUnavailableError(msg)

    def finished(self) -> bytes:
        """Return all of it."""
        return bytes(self._data)


def read_answer(call: Call[T], response: httpx.Response, body: bytes) -> T:
    """Return the value that an answer means.

    Raises:
        CkptGuardError: The answer is an error, or not of this version.
    """
    if not HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES:
        raise error_of_answer(response.status_code, headers_of(response), body)
    return call.read(parse_json(body) if body else None)


def headers_of(response: httpx.Response) -> dict[str, str]:
    """Return the headers of an answer, names in lower case."""
    return {name.lower(): value for name, value in response.headers.items()}


@contextmanager
def translating_http_errors(address: Address) -> Iterator[None]:
    """Turn httpx's errors into ours; none of ours holds a header."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        msg = f"no connection to the service at {address.url}: {_reason(error)}"
        raise NotSentError(msg) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.DecodingError) as error:
        msg = f"the service at {address.url} cannot be spoken to: {_reason(error)}"
        raise ServiceError(msg) from error
    except httpx.HTTPError as error:
        msg = f"no answer from the service at {address.url}: {_reason(error)}"
        raise ServiceUnavailableError(msg) from error


def _reason(error: Exception) -> str:
    return f"{str(error)[:200] or 'gave up waiting'} ({type(error).__name__})"


class NotSentError(ServiceUnavailableError):
    """The request never reached the service: it may always be made again."""

    code = "not_sent"


def retrying(call: Call[Any], deadline: Deadline) -> Any:  # noqa: ANN401 - stamina's type is private
    """Return stamina's loop over the tries of one call, sync and async alike."""

    def wait(error: Exception) -> bool | float:
        if not isinstance(error, ServiceUnavailableError):
            return False
        deadline.note(error)
        if not call.is_repeatable and not isinstance(error, NotSentError):
            return False
        if error.retry_after_s is None:
            return deadline.left_s > 0
        return error.retry_after_s if error.retry_after_s < deadline.left_s else False

    return stamina.retry_context(
        on=wait,
        attempts=None,
        timeout=max(_MIN_TRY_S, deadline.left_s),
        wait_initial=_FIRST_WAIT_S,
        wait_max=_LONGEST_WAIT_S,
        wait_jitter=_JITTER_S,
    )

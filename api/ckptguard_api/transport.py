"""Around every request: an id, the headers that browsers obey, one line in the log, and no loose end."""

import re
import time
import traceback
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from ckptguard.errors import CkptGuardError, TooManyRequestsError
from ckptguard_api.problems import INTERNAL, Problem, problem_of_error, problem_response

REQUEST_ID_HEADER: Final = "X-Request-ID"

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_ACTIVE: Final = 3500
"""Requests at once. All that may wait together (launchers, workers, streams) leaves room for the others."""
_QUIET_PATHS: Final = frozenset({"/healthz", "/readyz"})
_REQUEST_ID: Final = REQUEST_ID_HEADER.lower().encode("ascii")
# As they are sent: an ASGI server is given names in lower case (ASGI specification 3.0, HTTP).
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# Launchers ask by the thousand when a cluster restarts, and metrics count them: a line each would cost
# more than the answer. Whatever is not as it should be has its line.
_ASKED_BY_THOUSANDS: Final = "/resume-target"
_SLOW_S: Final = 1.0
_LOG: Final = structlog.get_logger("ckptguard.http")


class Transport:
    """The outermost layer of the app.

    Guarantees: every answer, a problem's too, has the headers; an exception that nobody expected becomes
    a problem that tells nothing of its inside, and a line in the log that tells all.

    Args:
        app: What comes after.
        max_active: Requests at once; more are told to come again.
    """

    def __init__(self, app: ASGIApp, *, max_active: int = MAX_ACTIVE) -> None:
        self._app = app
        self._max_active = max_active
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get(REQUEST_ID_HEADER))
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id)
        self._active += 1
        try:
            with bound_contextvars(request_id=request_id):
                await self._served(scope, receive, answer)
        finally:
            self._active -= 1

    async def _served(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        started = time.perf_counter()
        try:
            self._require_room(scope["path"])
            await self._app(scope, receive, answer.send)
        except CkptGuardError as error:
            await _tell(problem_of_error(error), scope, receive, answer, cause=error)
        except Exception as error:  # noqa: BLE001 - the process edge
            await _tell(INTERNAL, scope, receive, answer, cause=error)
        finally:
            _log_request(scope, answer.status, time.perf_counter() - started)

    def _require_room(self, path: str) -> None:
        if self._active > self._max_active and path not in _QUIET_PATHS:
            msg = f"more than {self._max_active} requests at once"
            raise TooManyRequestsError(msg)


class _Answer:
    """Sends on, with headers added, and remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            message["headers"] = self._with_ours(message["headers"])
        await self._send(message)

    def _with_ours(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = [pair for pair in given if pair[0] != _REQUEST_ID]
        names = {name for name, _ in headers}
        headers.append((_REQUEST_ID, self._request_id.encode("ascii")))
        headers += [pair for pair in _HEADERS if pair[0] not in names]
        return headers


async def _tell(
    problem: Problem, scope: Scope, receive: Receive, answer: _Answer, *, cause: Exception
) -> None:
    if problem.status is HTTPStatus.INTERNAL_SERVER_ERROR:
        # As text: a renderer of exceptions may show local variables, and a header holds the token.
        _LOG.error("fault", traceback="".join(traceback.format_exception(cause)))
    if answer.status is not None:
        return  # too late to say it otherwise: the connection ends before its answer is complete
    await problem_response(problem, request_id=scope["state"]["request_id"])(scope, receive, answer.send)


def _request_id(given: str | None) -> str:
    return given if given is not None and _SAFE_ID.fullmatch(given) else uuid4().hex


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    if scope["path"] in _QUIET_PATHS:
        return
    log = _LOG.debug if _is_one_of_thousands(scope["path"], status, seconds) else _LOG.info
    run = scope.get("path_params", {}).get("run")
    told = {"run": run} if run is not None else {}
    # The path without its query: people put secrets there.
    log(
        "request",
        method=scope["method"],
        path=scope["path"],
        status=status,
        seconds=round(seconds, 6),
        **told,
    )


def _is_one_of_thousands(path: str, status: int | None, seconds: float) -> bool:
    is_as_it_should_be = status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED) and seconds < _SLOW_S
    return is_as_it_should_be and path.endswith(_ASKED_BY_THOUSANDS)

"""Before any route: who asks, and what was sent; a body is read only of those who have a good token."""

import asyncio
from contextlib import nullcontext
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from ckptguard.errors import InvalidRequestError, ServiceUnavailableError
from ckptguard_api.body_decoding import (
    ENCODINGS,
    HEAVY_AT_ONCE,
    HEAVY_BYTES,
    BodyBudget,
    decode_body,
    is_large,
    limit_of,
    require_strict_json,
    too_large,
)
from ckptguard_api.problems import Problem, problem_of_status, problem_response
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import access_of, bearer_token, last_known_access

PROJECT_HEADER: Final = "Ckptguard-Project"
"""Names the project that a token of all projects acts in."""

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""All that is answered without a token; `/metrics` too where `metrics_public` is set."""

_HAS_LAST_KNOWN: Final = "/resume-target"
_OF_RUN: Final = "/v1/runs/"
_HAS_BODY: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SMALL_TIMEOUT_S: Final = 30.0
_LARGE_TIMEOUT_S: Final = 300.0
_INLINE_BYTES: Final = 16 << 10  # parsed on the event loop; longer ones in a thread


class Doorkeeper:
    """Lets a request in, with its caller in `request.state.access` and its body decoded.

    Args:
        app: What comes after.
        services: Of this process.
    """

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app = app
        self._services = services
        self._budget = BodyBudget()
        self._heavy = asyncio.Semaphore(HEAVY_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the token, then at the body."""
        if scope["type"] != "http" or scope["state"].get("is_page", False):  # it went through `PageDoor`
            await self._app(scope, receive, send)
            return
        refuse_unstorable(scope)
        headers = Headers(scope=scope)
        if not self._is_open(scope["path"]):
            await self._let_in(scope, headers)
        if scope["method"] not in _HAS_BODY:
            await self._app(scope, receive, send)
            return
        held = _HeldBody(self._budget)
        try:
            await self._with_body(scope, headers, held, receive, send)
        finally:
            held.release()

    def _is_open(self, path: str) -> bool:
        return path in OPEN_PATHS or (path == "/metrics" and self._services.settings.metrics_public)

    async def _let_in(self, scope: Scope, headers: Headers) -> None:
        token = bearer_token(headers.get("authorization"))
        project_name = headers.get(PROJECT_HEADER)
        try:
            access, seen = await access_of(
                self._services, token, project_name, run=_run_asked_about(scope["path"])
            )
            scope["state"]["revisions"] = seen
        except ServiceUnavailableError as error:
            known = last_known_access(self._services, token, project_name)
            if known is None or not scope["path"].endswith(_HAS_LAST_KNOWN):
                raise
            # Its route says 503 too, with the last answer that it gave to this token's project.
            scope["state"]["unavailable"] = error
            access = known
        bind_contextvars(actor=access.actor.name)
        scope["state"]["access"] = access

    async def _with_body(
        self, scope: Scope, headers: Headers, held: "_HeldBody", receive: Receive, send: Send
    ) -> None:
        refusal = _refusal_of_headers(headers)
        if refusal is not None:
            response = problem_response(refusal, request_id=scope["state"]["request_id"])
            await response(scope, receive, send)
            return
        path: str = scope["path"]
        timeout_s = _LARGE_TIMEOUT_S if is_large(path) else _SMALL_TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                await held.read(receive, headers, limit=limit_of(path))
        except TimeoutError as error:
            msg = f"the body did not arrive within {timeout_s:g} s"
            raise InvalidRequestError(msg) from error
        if held.is_complete:
            await _decoded(held, headers, path)
            async with self._heavy if len(held.body) > HEAVY_BYTES else nullcontext():
                await self._app(scope, held.replay(receive), send)


class _HeldBody:
    """One body in memory, counted against the budget of the process."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._taken = 0
        self.body = b""
        self.is_complete = False

    async def read(self, receive: Receive, headers: Headers, *, limit: int) -> None:
        """Read all that is sent; a caller who went away leaves it incomplete.

        Raises:
            TooLargeError: It announces, or sends, more than `limit`.
        """
        if int(headers.get("content-length") or 0) > limit:
            raise too_large(limit)
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            piece = message.get("body", b"")
            self.take(len(piece))
            if self._taken > limit:
                raise too_large(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                break
        self.body = b"".join(pieces)
        self.is_complete = True

    def take(self, count: int) -> None:
        """Count bytes."""
        self._budget.take(count)
        self._taken += count

    def release(self) -> None:
        """Give all bytes back."""
        self._budget.give(self._taken)
        self._taken = 0

    def replay(self, receive: Receive) -> Receive:
        """Return a `receive` that gives the body first."""
        pending: list[Message] = [{"type": "http.request", "body": self.body, "more_body": False}]

        async def replayed() -> Message:
            return pending.pop() if pending else await receive()

        return replayed


async def _decoded(held: _HeldBody, headers: Headers, path: str) -> None:
    encoding, limit = _encoding_of(headers), limit_of(path)
    if encoding != "identity":
        held.body = await asyncio.to_thread(decode_body, held.body, encoding, limit=limit)
        held.take(len(held.body))
    if is_large(path) or not held.body:
        return  # its route parses it, under limits of its own
    if len(held.body) > _INLINE_BYTES:
        await asyncio.to_thread(require_strict_json, held.body)
    else:
        require_strict_json(held.body)


def _refusal_of_headers(headers: Headers) -> Problem | None:
    length = headers.get("content-length")
    if length == "0" or (length is None and "transfer-encoding" not in headers):
        return None
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        return problem_of_status(415, "send `Content-Type: application/json`")
    if _encoding_of(headers) not in ENCODINGS:
        accepted = {"Accept-Encoding": ", ".join(ENCODINGS)}
        return problem_of_status(415, f"send one of the content encodings {', '.join(ENCODINGS)}", accepted)
    return None


def _encoding_of(headers: Headers) -> str:
    return headers.get("content-encoding", "identity").strip().lower()


def _run_asked_about(path: str) -> str | None:
    """Return the run whose resume target is asked for."""
    if path.startswith(_OF_RUN) and path.endswith(_HAS_LAST_KNOWN):
        return path[len(_OF_RUN) : -len(_HAS_LAST_KNOWN)]
    return None


def refuse_unstorable(scope: Scope) -> None:
    """Raise InvalidRequestError for what no database column can hold."""
    query: bytes = scope.get("query_string", b"")
    if "\0" in scope["path"] or b"%00" in query or b"\0" in query:
        msg = "NUL in the path or the query"
        raise InvalidRequestError(msg)

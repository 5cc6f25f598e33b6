"""Before any page: who looks, and whether a form came from one of our own pages."""

import asyncio
import hashlib
import hmac
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from ckptguard.errors import (
    CkptGuardError,
    ForbiddenError,
    InvalidRequestError,
    TooLargeError,
    UnauthorizedError,
)
from ckptguard_api.domain.tokens import is_token_shaped
from ckptguard_api.doorkeeper import refuse_unstorable
from ckptguard_api.pages.errors import error_page
from ckptguard_api.pages.paths import ROOT, SIGN_IN, STATIC, is_page, project_of_path
from ckptguard_api.pages.rendering import html
from ckptguard_api.problems import problem_of_error
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import access_of

COOKIE: Final = "ckptguard_browser"
CSRF_FIELD: Final = "csrf"

_COMPRESSED_FROM_BYTES: Final = 1024
_MAX_FORM_BYTES: Final = 64 << 10
_MAX_FIELDS: Final = 50
_FORM_TIMEOUT_S: Final = 30.0


class PageDoor:
    """Lets a browser in by its cookie; what is not a page goes on as it came.

    Guarantees: a form is acted on only if it was sent by a page of this service to this browser: the cookie
    goes along on no request from elsewhere (SameSite), `Origin` names this host, and the form has a secret
    that only this browser's pages were given (OWASP, Cross-Site Request Forgery Prevention).

    Args:
        app: What comes after.
        services: Of this process.
    """

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app = app
        self._pages = GZipMiddleware(app, minimum_size=_COMPRESSED_FROM_BYTES, compresslevel=5)
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the cookie, then at the form."""
        if scope["type"] != "http" or not is_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope["state"]["is_page"] = True
        try:
            refusal = await self._refusal(scope, receive)
        except CkptGuardError as error:
            refusal = error_page(problem_of_error(error), request_id=scope["state"]["request_id"])
        await (self._pages if refusal is None else refusal)(scope, receive, send)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        refuse_unstorable(scope)
        try:
            await self._let_in(scope)
        except UnauthorizedError:
            return _to_sign_in(scope)
        if scope["method"] == "POST":
            _require_own_origin(Headers(scope=scope))
            scope["state"]["form"] = await _form(receive)
            self._require_secret(scope)
        return None

    async def _let_in(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path == SIGN_IN or path.startswith(f"{STATIC}/"):
            return
        token = cookie_parser(Headers(scope=scope).get("cookie", "")).get(COOKIE, "")
        if not is_token_shaped(token):
            msg = "not signed in"
            raise UnauthorizedError(msg)
        access, _ = await access_of(self._services, token, project_of_path(path))
        bind_contextvars(actor=access.actor.name)
        scope["state"] |= {"access": access, "browser_token": token}

    def _require_secret(self, scope: Scope) -> None:
        token = scope["state"].get("browser_token")
        if token is None:
            return  # the form of `SIGN_IN`: nobody is signed in whose rights could be abused
        if not hmac.compare_digest(scope["state"]["form"].get(CSRF_FIELD, ""), csrf_secret(token)):
            msg = "this form is not from a page that is signed in now; go back, reload it, and send it again"
            raise ForbiddenError(msg)


def csrf_secret(token: str) -> str:
    """Return what the forms of one browser carry; it tells nothing of the token."""
    return hmac.new(token.encode(), b"ckptguard form", hashlib.sha256).hexdigest()


def _to_sign_in(scope: Scope) -> Response:
    if Headers(scope=scope).get("sec-fetch-site") == "cross-site" and scope["method"] == "GET":
        # A link elsewhere led here, and the cookie does not go along: our own page asks once more.
        return html("once_more.html")
    query = scope.get("query_string", b"").decode("latin-1")
    here = scope["path"] + (f"?{query}" if query else "")
    back = f"?next={quote(here, safe='/')}" if scope["method"] == "GET" and here not in ("/", ROOT) else ""
    return RedirectResponse(SIGN_IN + back, status_code=HTTPStatus.SEE_OTHER)


def _require_own_origin(headers: Headers) -> None:
    origin = urlsplit(headers.get("origin", ""))
    if not origin.netloc or origin.netloc != headers.get("host"):
        msg = "forms are taken only from pages of this service"
        raise ForbiddenError(msg)


async def _form(receive: Receive) -> dict[str, str]:
    try:
        async with asyncio.timeout(_FORM_TIMEOUT_S):
            body = await _body(receive)
    except TimeoutError as error:
        msg = f"the form did not arrive within {_FORM_TIMEOUT_S:g} s"
        raise InvalidRequestError(msg) from error
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError as error:
        msg = "not a form"
        raise InvalidRequestError(msg) from error
    if any("\0" in part for field in fields for part in field):
        msg = "NUL in a field"
        raise InvalidRequestError(msg)
    return dict(fields)


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            msg = "the form is incomplete"
            raise InvalidRequestError(msg)
        pieces.append(message.get("body", b""))
        if sum(map(len, pieces)) > _MAX_FORM_BYTES:
            msg = f"a form of more than {_MAX_FORM_BYTES} bytes"
            raise TooLargeError(msg)
        if not message.get("more_body", False):
            return b"".join(pieces)

"""Sign in with a token, and out."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from ckptguard.errors import ForbiddenError, UnauthorizedError
from ckptguard_api.pages.door import COOKIE
from ckptguard_api.pages.paths import ROOT, SIGN_IN, SIGN_OUT, local_path
from ckptguard_api.pages.rendering import html
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.routes.dependencies import services_of
from ckptguard_api.use_cases.browser_tokens import BROWSER_S, sign_in, sign_out

router = APIRouter(include_in_schema=False)

_MAX_NEXT_CHARS: Final = 4000

Next = Annotated[str, Query(max_length=_MAX_NEXT_CHARS)]


@router.get("/")
@router.get(ROOT)
async def first_page_route(visit: VisitDep) -> Response:
    """Go where an operator looks first."""
    return visit.go_to("runs")


@router.get(SIGN_IN)
async def sign_in_page_route(next: Next = ROOT) -> Response:  # noqa: A002 - the name in the address
    """Ask for a token."""
    return html("sign_in.html", next=local_path(next), refused=None)


@router.post(SIGN_IN)
async def sign_in_route(request: Request) -> Response:
    """Take a token, and give the browser one of its own."""
    services = services_of(request)
    form: dict[str, str] = request.state.form
    target = local_path(form.get("next", ROOT))
    try:
        made = await run_in_threadpool(
            sign_in, services, form.get("token", "").strip(), is_read_only="read_only" in form
        )
    except (UnauthorizedError, ForbiddenError) as error:
        return html("sign_in.html", status=HTTPStatus.FORBIDDEN, next=target, refused=str(error))
    response = RedirectResponse(target, status_code=HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COOKIE,
        made.token.text,
        max_age=int(BROWSER_S),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.post(SIGN_OUT)
async def sign_out_route(visit: VisitDep) -> Response:
    """End the browser's token."""
    await run_in_threadpool(sign_out, visit.services, visit.access.holder.token_id)
    response = RedirectResponse(SIGN_IN, status_code=HTTPStatus.SEE_OTHER)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response

"""What a page says when it cannot be shown."""

from typing import Final

from starlette.responses import Response

from ckptguard_api.pages.rendering import html
from ckptguard_api.problems import Problem

_WHAT_TO_DO: Final = {
    "not_found": "The address may be mistyped, or what it showed belongs to another project.",
    "forbidden": "Sign in with a token that may do this.",
    "conflict": "Somebody was faster, or the state does not allow it. Go back and look at it again.",
    "service_unavailable": "The database gives no answer. Reload in a moment.",
    "too_many_requests": "Reload in a moment.",
    "internal": "Tell whoever runs the service; its log tells more under the request's id.",
}


def error_page(problem: Problem, *, request_id: str) -> Response:
    """Return a page that says what happened and what to do."""
    page = html(
        "error.html",
        status=problem.status,
        problem=problem,
        what_to_do=_WHAT_TO_DO.get(problem.code, "Go back and correct what is named above."),
        request_id=request_id,
    )
    page.headers.update(problem.headers)
    return page

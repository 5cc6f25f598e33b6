"""Templates to answers: everything escaped, no script and no style but our own files."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from ckptguard import __version__
from ckptguard.model.service import EventKind
from ckptguard_api.pages import wording
from ckptguard_api.pages.static_files import static_url

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    # Not `no-referrer`: a browser then says `Origin: null` with our own forms (Fetch, 3.2).
    "Referrer-Policy": "same-origin",
    "Vary": "Cookie, HX-Request",
}

_TEMPLATES: Final = Environment(
    loader=PackageLoader("ckptguard_api.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters |= wording.FILTERS
_TEMPLATES.globals |= {
    "static": static_url,
    "version": __version__,
    "live_kinds": " ".join(("progress", *EventKind)),  # all that a stream may send (static/live.js)
}


def html(template: str, *, status: int = HTTPStatus.OK, **context: Any) -> Response:  # noqa: ANN401
    """Render a template.

    Args:
        template: Its file.
        status: Of the answer.
        context: What it shows; `now`, to which ages count, is there anyway.
    """
    context = {"now": datetime.now(UTC), "visit": None, "csrf": None} | context
    text = _TEMPLATES.get_template(template).render(context)
    return HTMLResponse(text, status_code=status, headers=SECURITY_HEADERS)

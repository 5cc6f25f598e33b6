"""What a page knows of its visitor."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response

from ckptguard.errors import ForbiddenError
from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import Actor
from ckptguard_api.pages.door import csrf_secret
from ckptguard_api.pages.paths import ROOT
from ckptguard_api.pages.rendering import html
from ckptguard_api.routes.dependencies import services_of
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import DEFAULT_PROJECT, Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of somebody who is signed in.

    Args:
        request: As it came.
        services: Of this process.
        access: Whose, and in which project.
        token: The browser's; for streams, which look at it again.
    """

    request: Request
    services: Services
    access: Access
    token: str

    @property
    def actor(self) -> Actor:
        """Who looks."""
        return self.access.actor

    @property
    def project_id(self) -> int:
        """The project that the page shows."""
        return self.access.project_id

    @property
    def project(self) -> str:
        """The name of that project."""
        return str(
            self.request.path_params.get("project", self.access.holder.project_name or DEFAULT_PROJECT)
        )

    @property
    def sees_all_projects(self) -> bool:
        """Whether another project may be chosen."""
        return self.actor.project_id is None

    @property
    def may_change(self) -> bool:
        """Whether actions are offered."""
        return self.actor.may(Scope.ADMIN)

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of the page only."""
        return "hx-request" in self.request.headers

    @property
    def form(self) -> dict[str, str]:
        """The fields of a POST."""
        fields: dict[str, str] = self.request.state.form
        return fields

    def path(self, *parts: object) -> str:
        """Return the path of a page of this project, each part quoted."""
        return "/".join([ROOT, "in", *(quote(str(part), safe="") for part in (self.project, *parts))])

    def page(self, template: str, *, status: int = HTTPStatus.OK, **context: Any) -> Response:  # noqa: ANN401
        """Render a template; it sees this visit as `visit`."""
        return html(template, status=status, visit=self, csrf=csrf_secret(self.token), **context)

    def go_to(self, *parts: object) -> Response:
        """Return to a page after a form was acted on."""
        return RedirectResponse(self.path(*parts), status_code=HTTPStatus.SEE_OTHER)


async def visit_of(request: Request) -> Visit:
    """Return the visit of a request that `PageDoor` let in.

    Raises:
        ForbiddenError: The token may not read.
    """
    access: Access = request.state.access
    if not access.actor.may(Scope.READ):
        msg = "this token may not read"
        raise ForbiddenError(msg)
    return Visit(
        request=request, services=services_of(request), access=access, token=request.state.browser_token
    )


async def admin_visit_of(visit: Annotated[Visit, Depends(visit_of)]) -> Visit:
    """Return the visit of somebody who may change things.

    Raises:
        ForbiddenError: They may only look.
    """
    if not visit.may_change:
        msg = "you are signed in to look only; sign out, and in again with a token of scope admin"
        raise ForbiddenError(msg)
    return visit


VisitDep = Annotated[Visit, Depends(visit_of)]
AdminVisitDep = Annotated[Visit, Depends(admin_visit_of)]

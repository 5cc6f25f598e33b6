"""What a route may ask for: the services, the caller, and the project it acts in."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from ckptguard.errors import ForbiddenError, UnauthorizedError
from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import Actor
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import Access  # noqa: TC001 - FastAPI reads the hints here


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and where.

    Args:
        actor: The token's holder.
        project_id: The one project that this request acts in.
        token_id: The row of the token.
    """

    actor: Actor
    project_id: int
    token_id: int


def services_of(request: Request) -> Services:
    """Return the services of this process."""
    services: Services = request.app.state.services
    return services


async def _services(request: Request) -> Services:
    return services_of(request)  # async: FastAPI takes a thread for each plain function


ServicesDep = Annotated[Services, Depends(_services)]


def requires(*scopes: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that lets in a token with any of these scopes.

    The token was looked at before the body was read (`ckptguard_api.doorkeeper`).

    Raises:
        UnauthorizedError: No good token.
        ForbiddenError: The token has none of the scopes.
        NotFoundError: The project named does not exist, or is not the token's.
    """

    async def caller(request: Request) -> Caller:
        access: Access | None = getattr(request.state, "access", None)
        if access is None:
            msg = "no token"
            raise UnauthorizedError(msg)
        if not any(access.actor.may(scope) for scope in scopes):
            msg = f"this needs a token with scope {' or '.join(scopes)}"
            raise ForbiddenError(msg)
        return Caller(actor=access.actor, project_id=access.project_id, token_id=access.holder.token_id)

    caller.scopes = scopes  # type: ignore[attr-defined] # read by the test that tries every route
    return caller


ReaderDep = Annotated[Caller, Depends(requires(Scope.READ))]
RegistrarDep = Annotated[Caller, Depends(requires(Scope.REGISTER))]
WorkerDep = Annotated[Caller, Depends(requires(Scope.WORK))]
AdminDep = Annotated[Caller, Depends(requires(Scope.ADMIN))]

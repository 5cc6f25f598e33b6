"""What a route may ask for: the services, the caller, and the project it acts in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import Actor
from ckptguard_api.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and where.

    Args:
        actor: The token's holder.
        project_id: The one project that this request acts in.
    """

    actor: Actor
    project_id: int


def services_of(request: Request) -> Services:
    """Return the services of this process."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]


def requires(*scopes: Scope) -> Callable[[Request], Caller]:
    """Return a dependency that lets in a token with any of these scopes.

    Raises:
        UnauthorizedError: No good token.
        ForbiddenError: The token has none of the scopes.
        NotFoundError: The project named does not exist, or is not the token's.
    """

    def caller(request: Request) -> Caller:
        raise NotImplementedError(scopes, request)

    return caller


ReaderDep = Annotated[Caller, Depends(requires(Scope.READ))]
RegistrarDep = Annotated[Caller, Depends(requires(Scope.REGISTER))]
WorkerDep = Annotated[Caller, Depends(requires(Scope.WORK))]
AdminDep = Annotated[Caller, Depends(requires(Scope.ADMIN))]

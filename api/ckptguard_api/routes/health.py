"""`/healthz` and `/readyz`: for launchers of the service; no token."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from ckptguard.errors import ConfigError, ServiceUnavailableError
from ckptguard_api.routes.dependencies import ServicesDep
from ckptguard_migrations import current, head

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The database answers, and its schema is this version's."""

    status: Literal["ready"] = "ready"
    revision: str | None


@router.get("/healthz")
async def healthz() -> Alive:
    """Say that the process lives."""
    return Alive()


@router.get("/readyz", responses={503: {"description": "The database gives no answer, or is not at head."}})
def readyz(services: ServicesDep) -> Ready:
    """Say whether requests can be answered.

    Raises:
        ServiceUnavailableError: They cannot; the message says what to do.
    """
    if services.stopping.is_set:
        msg = "the service is going down"
        raise ServiceUnavailableError(msg)
    try:
        revision = current(services.settings.database_address)
    except ConfigError as error:
        raise ServiceUnavailableError(str(error)) from error
    if revision != head():
        msg = (
            f"the database is at {revision or 'nothing'}, this version needs {head()}: `ckptguard db upgrade`"
        )
        raise ServiceUnavailableError(msg)
    return Ready(revision=revision)

"""`/metrics`: what Prometheus scrapes."""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST

from ckptguard.errors import ForbiddenError
from ckptguard.model.service import Scope
from ckptguard_api.metrics import metrics_of
from ckptguard_api.routes.dependencies import requires, services_of

router = APIRouter(tags=["metrics"])


async def may_scrape(request: Request) -> None:
    """Let in a token of all projects with scope `read`, or anybody where the operator says so.

    Raises:
        UnauthorizedError: No good token.
        ForbiddenError: It has another scope, or is of one project: metrics name the runs of all.
    """
    if services_of(request).settings.metrics_public:
        return
    caller = await requires(Scope.READ)(request)
    if caller.actor.project_id is not None:
        msg = "metrics name the runs of all projects; this token is of one"
        raise ForbiddenError(msg)


may_scrape.scopes = (Scope.READ,)  # type: ignore[attr-defined] # read by the test that tries every route


@router.get("/metrics", response_class=Response, dependencies=[Depends(may_scrape)])
def metrics(request: Request) -> Response:
    """Return the metrics of this process in Prometheus' text format."""
    return Response(metrics_of(request.app).render(), media_type=CONTENT_TYPE_LATEST)

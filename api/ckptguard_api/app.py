"""The FastAPI application: every route, and what lies around and beside them."""

from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from ckptguard import __version__
from ckptguard.errors import CkptGuardError
from ckptguard_api.database import Database
from ckptguard_api.doorkeeper import Doorkeeper
from ckptguard_api.measured_requests import MeasuredRequests
from ckptguard_api.metrics import install
from ckptguard_api.openapi_document import openapi_document
from ckptguard_api.pages import (
    checkpoint_actions,
    checkpoint_csv,
    checkpoint_page,
    diff_page,
    events_page,
    file_map,
    finding_page,
    live_stream,
    projects_page,
    run_page,
    run_timeline,
    running_map,
    runs_page,
    sign_in,
    static_files,
    stores_page,
    tensors_page,
    validation_page,
    workers_page,
)
from ckptguard_api.pages.door import PageDoor
from ckptguard_api.pages.errors import error_page
from ckptguard_api.problems import (
    Problem,
    problem_of_error,
    problem_of_status,
    problem_of_validation,
    problem_response,
)
from ckptguard_api.process_life import answer_steadily, lifespan
from ckptguard_api.routes import (
    checkpoints,
    events,
    health,
    holds,
    leases,
    metrics,
    notes,
    projects,
    registration,
    restarts,
    resume_target,
    runs,
    stores,
    streams,
    tokens,
    validations,
    webhooks,
    workers,
)
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.structured_logs import configure_logs
from ckptguard_api.tracing import TracedRequests
from ckptguard_api.transport import Transport

_MODULES: Final = (
    checkpoints,
    events,
    health,
    holds,
    leases,
    metrics,
    notes,
    projects,
    registration,
    restarts,
    resume_target,
    runs,
    stores,
    streams,
    tokens,
    validations,
    webhooks,
    workers,
)
_PAGES: Final = (
    checkpoint_actions,
    checkpoint_csv,
    checkpoint_page,
    diff_page,
    events_page,
    file_map,
    finding_page,
    live_stream,
    projects_page,
    run_page,
    run_timeline,
    running_map,
    runs_page,
    sign_in,
    static_files,
    stores_page,
    tensors_page,
    validation_page,
    workers_page,
)


def from_environment() -> FastAPI:
    """Return the app as the environment describes it; what each process of several calls."""
    configure_logs(is_for_good=True)
    settings = Settings()
    app = create_app(Services(database=Database(settings.database_address), settings=settings))
    answer_steadily()
    return app


def create_app(services: Services, *, stops_with_signals: bool = True) -> FastAPI:
    """Return the app.

    Args:
        services: What its routes share; closed when the app ends.
        stops_with_signals: Whether a signal to this process ends waits; else the server sets `stopping`.
    """
    app = FastAPI(
        title="ckptguard",
        version=__version__,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours is `tracing`
    )
    app.state.services = services
    app.state.stops_with_signals = stops_with_signals
    _include_routes(app)
    _answer_with_problems(app)
    app.add_middleware(Doorkeeper, services=services)
    app.add_middleware(PageDoor, services=services)
    app.add_middleware(Transport)  # the last one added is the outermost
    app.add_middleware(MeasuredRequests, metrics=install(app, services))
    if services.tracing is not None:
        app.add_middleware(TracedRequests, tracing=services.tracing)
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign] # FastAPI's own way
    return app


def _operation_id(route: APIRoute) -> str:
    module = route.endpoint.__module__.rpartition(".")[2]
    return f"{module}_{route.name.removesuffix('_route')}"


def _include_routes(app: FastAPI) -> None:
    app.router.routes.insert(0, resume_target.Shortcut())
    for module in (*_MODULES, *_PAGES):
        app.include_router(module.router)


def _answer_with_problems(app: FastAPI) -> None:
    async def of_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, CkptGuardError)  # noqa: S101 - Starlette's signature is wider
        return _told(request, problem_of_error(error))

    async def of_validation(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
        return _told(request, problem_of_validation(error.errors()))

    async def of_status(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - as above
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(sorted(_methods_at(request)))
        return _told(request, problem_of_status(error.status_code, str(error.detail), headers))

    app.add_exception_handler(CkptGuardError, of_error)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_status)


def _methods_at(request: Request) -> set[str]:
    """Return all methods of a path; whoever refuses one knows only the first route there."""
    listed = (
        *request.app.router.routes,
        *(route for module in (*_MODULES, *_PAGES) for route in module.router.routes),
    )
    routes = [route for route in listed if isinstance(route, Route)]
    there = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in there for method in route.methods or ()}


def _told(request: Request, problem: Problem) -> Response:
    answer = error_page if getattr(request.state, "is_page", False) else problem_response
    return answer(problem, request_id=request.state.request_id)

"""Errors as RFC 9457 problems: the one place that knows which error has which HTTP status."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import orjson
from starlette.responses import Response

from ckptguard import errors
from ckptguard.errors import CkptGuardError
from ckptguard.model.manifest_laws import escape_pointer

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_AFTER_S: Final = 2
_MAX_PROBLEMS: Final = 1000

STATUS_OF_ERROR: Final[Mapping[type[CkptGuardError], HTTPStatus]] = {
    errors.InvalidRequestError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.LocationRefusedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.FormatError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.ManifestFormatError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnsupportedFormatError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.PathEscapeError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.LimitExceededError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.UnauthorizedError: HTTPStatus.UNAUTHORIZED,
    errors.ForbiddenError: HTTPStatus.FORBIDDEN,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.ConflictError: HTTPStatus.CONFLICT,
    errors.LeaseLostError: HTTPStatus.CONFLICT,
    errors.TooManyRequestsError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.ServiceUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StoreUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    # Nothing that a caller did: the service itself is set up or built wrongly.
    errors.ConfigError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.CanaryError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ObjectNotFoundError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.AccessDeniedError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.StoreError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.ServiceError: HTTPStatus.INTERNAL_SERVER_ERROR,
    CkptGuardError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""Every class of `ckptguard.errors`; others take that of their nearest parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a caller is told.

    Args:
        code: Stable name, that of the error; ends the `type`.
        status: HTTP status.
        detail: One sentence about this case.
        problems: Every broken rule, where several are told apart.
        members: Further members of the document.
        headers: Further headers of the answer.
    """

    code: str
    status: HTTPStatus
    detail: str
    problems: tuple[str, ...] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


INTERNAL: Final = Problem(
    code="internal",
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="a fault of the service; its log tells more under this request_id",
)
"""What is told of an exception that nobody expected: nothing of its inside."""


def problem_of_error(error: CkptGuardError, *, members: Mapping[str, Any] | None = None) -> Problem:
    """Return what a caller is told of an error.

    Args:
        error: Any error of the product.
        members: Further members of the document, e.g. `last_known`.
    """
    status = next(STATUS_OF_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_OF_ERROR)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        return INTERNAL
    return Problem(
        code=error.code,
        status=status,
        detail=str(error),
        problems=tuple(getattr(error, "problems", ())),
        members=members or {},
        headers=_headers_of(status),
    )


def problem_of_status(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """Return what a caller is told where HTTP itself refuses, e.g. 404, 405 and 415."""
    known = HTTPStatus(status)
    code = _CODE_OF_STATUS.get(known, "_".join(known.phrase.lower().replace("-", " ").split()))
    return Problem(code=code, status=known, detail=detail, headers={**_headers_of(known), **(headers or {})})


_CODE_OF_STATUS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.BAD_REQUEST: errors.InvalidRequestError.code,
    HTTPStatus.UNPROCESSABLE_ENTITY: errors.InvalidRequestError.code,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: errors.TooLargeError.code,
}


def problem_of_validation(faults: Sequence[Mapping[str, Any]]) -> Problem:
    """Return every fault that pydantic found, each with its place; values are not repeated."""
    told = tuple(_validation_lines(faults))
    return Problem(
        code=errors.InvalidRequestError.code,
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        detail=f"the request breaks {len(told)} rule{'s' if len(told) > 1 else ''}",
        problems=told,
    )


def problem_response(problem: Problem, *, request_id: str) -> Response:
    """Return the answer that carries a problem."""
    document: dict[str, Any] = {
        "type": f"urn:ckptguard:problem:{problem.code}",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.detail,
        "problems": list(problem.problems[:_MAX_PROBLEMS]),
        "request_id": request_id,
        **problem.members,
    }
    return Response(
        orjson.dumps(document, default=str),
        status_code=problem.status.value,
        media_type=MEDIA_TYPE,
        headers=dict(problem.headers),
    )


def _headers_of(status: HTTPStatus) -> dict[str, str]:
    if status is HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": 'Bearer realm="ckptguard"'}
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        return {"Retry-After": str(_RETRY_AFTER_S)}
    return {}


def _validation_lines(faults: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for fault in faults:
        place, *path = fault["loc"]
        pointer = "".join(f"/{escape_pointer(str(step))}" for step in path)
        yield f"{pointer}: {fault['msg']}" if place == "body" else f"{place} {pointer[1:]}: {fault['msg']}"

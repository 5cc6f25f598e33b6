"""Answers that are no success: problem documents (RFC 9457) to the errors of the product."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from ckptguard import errors
from ckptguard.client.decode import parse_json
from ckptguard.errors import CkptGuardError, ServiceError

TYPE_PREFIX: Final = "urn:ckptguard:problem:"
MAX_TEXT: Final = 2000
"""Characters of one sentence of an answer that are passed on."""
MAX_PROBLEMS: Final = 1000
_MAX_RETRY_AFTER_S: Final = 3600.0

_AWAY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses that a proxy, or a service that is starting, gives: nobody answered."""

_BY_STATUS: Final[Mapping[int, type[ServiceError]]] = {
    HTTPStatus.UNAUTHORIZED: errors.UnauthorizedError,
    HTTPStatus.FORBIDDEN: errors.ForbiddenError,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: errors.TooLargeError,
}

_BY_CODE: Final[Mapping[str, type[CkptGuardError]]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ServiceError | errors.FormatError)
}


def error_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> CkptGuardError:
    """Return the error that an answer other than 2xx means.

    Args:
        status: HTTP's.
        headers: Names in lower case.
        body: As it came; may be anything.
    """
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        msg = f"the service answered with a redirect ({status}), which is never followed"
        return ServiceError(msg)
    problem = _problem(headers, body)
    code = _text(problem.get("type", "")).removeprefix(TYPE_PREFIX)
    title = _text(problem.get("title", "")) or f"status {status}"
    message = _text(problem.get("detail", "")) or f"the service answered {title}"
    told = problem.get("problems")
    problems = [_text(entry) for entry in told[:MAX_PROBLEMS]] if isinstance(told, list) else []
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ServiceError)
    if status in _AWAY or issubclass(kind, errors.ServiceUnavailableError):
        known = problem.get("last_known")
        away = kind if issubclass(kind, errors.ServiceUnavailableError) else errors.ServiceUnavailableError
        return away(
            message,
            problems=problems,
            retry_after_s=_retry_after_s(headers),
            last_known=known if isinstance(known, dict) else None,
        )
    return _error(kind, message, problems)


def _error(kind: type[CkptGuardError], message: str, problems: Sequence[str]) -> CkptGuardError:
    if issubclass(kind, errors.ManifestFormatError):
        return kind(problems or [message])
    if issubclass(kind, errors.FormatError | ServiceError):
        return kind(message, problems=problems)
    return ServiceError(message, problems=problems)


def _problem(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the document; empty where the answer is none: a proxy's page says nothing to programs."""
    if "json" not in headers.get("content-type", ""):
        return {}
    try:
        value = parse_json(body)
    except ServiceError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return `Retry-After` in seconds; a date, which needs equal clocks, is not taken."""
    text = headers.get("retry-after", "").strip()
    return min(float(text), _MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else None

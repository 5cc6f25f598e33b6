"""What an exception of an fsspec driver means: gone, refused, misused, or unknown.

Drivers raise what they like, and some say FileNotFoundError for every failure (fsspec
2026.9 implementations/http.py `_info`). So the whole chain of causes is read, the
innermost first, and what no rule knows is StoreUnavailableError: never absent.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from ckptguard.errors import (
    AccessDeniedError,
    CkptGuardError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from ckptguard.storage.redaction import redacted

# Codes and class names, so that no driver has to be imported to recognise what it raises.
_MISSING_ROOT = frozenset({"NoSuchBucket", "BucketNotFound", "ContainerNotFound"})
_MISSING_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"})
_TRANSIENT_ERRNO = frozenset(
    {errno.EIO, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.EPIPE}
    | {errno.EAGAIN, errno.ESTALE, getattr(errno, "EREMOTEIO", errno.EIO)}
)
_ABSENT_TYPES = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_PLAINLY_ABSENT = (*_ABSENT_TYPES, KeyError)  # fsspec's memory driver looks in a dict
# A body cut short or a garbled header, which says "400" though no server did (aiohttp 3.14).
_BROKEN_ANSWERS = "aiohttp.http_exceptions"
_DENIED_STATUS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_ABSENT_STATUS = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_TRANSIENT_STATUS = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
    | {HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}  # it was as long as asked for when it was opened
)


@contextmanager
def translating_driver_errors(key: str) -> Iterator[None]:
    """Turn whatever a driver raises in the body into a StoreError about `key`, keeping the cause."""
    try:
        yield
    except CkptGuardError:
        raise
    except Exception as error:  # the one edge to third-party drivers, which may raise anything
        raise from_driver_error(error, key) from error


def from_driver_error(error: BaseException, key: str) -> StoreError:
    """Translate one exception by the innermost cause that says something."""
    causes = list(_causes(error))[::-1]
    for cause in causes:
        known = _from_code(cause, key) or _from_status(cause, key) or _from_type(cause, key)
        if known is not None:
            return known
    if any(_http_status(cause) is not None for cause in causes):
        return StoreError(_reason(error), key=key)
    if isinstance(error, _ABSENT_TYPES) and isinstance(causes[0], _PLAINLY_ABSENT):
        return ObjectNotFoundError("no such object", key=key)
    return StoreUnavailableError(_reason(error), key=key)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _from_code(error: BaseException, key: str) -> StoreError | None:
    code = _service_code(error)
    if code in _MISSING_ROOT:
        # Not ObjectNotFoundError: nothing is known about what the bucket holds or held.
        return StoreError(f"the store's root is not there ({code})", key=key)
    if type(error).__name__ in _MISSING_CREDENTIALS:
        return AccessDeniedError(_reason(error), key=key)
    if code in ("NoSuchKey", "NoSuchVersion"):
        return ObjectNotFoundError("no such object", key=key)
    return None


def _from_status(error: BaseException, key: str) -> StoreError | None:
    status = _http_status(error)
    if status is None:
        return None
    if status in _DENIED_STATUS:
        return AccessDeniedError(f"access denied (HTTP {status})", key=key)
    if status in _ABSENT_STATUS:
        return ObjectNotFoundError("no such object", key=key)
    if status in _TRANSIENT_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return StoreUnavailableError(f"HTTP {status}: {_reason(error)}", key=key)
    return None  # a refusal of some other kind, unless a driver's own exception tells more


def _from_type(error: BaseException, key: str) -> StoreError | None:
    if type(error).__module__ == _BROKEN_ANSWERS:
        return StoreUnavailableError(_reason(error), key=key)
    if isinstance(error, PermissionError):
        return AccessDeniedError("access denied", key=key)
    if isinstance(error, TimeoutError | ConnectionError):
        return StoreUnavailableError(_reason(error), key=key)
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO:
        return StoreUnavailableError(_reason(error), key=key)
    return None


def _service_code(error: BaseException) -> str | None:
    """Return `response["Error"]["Code"]` of botocore's ClientError, `error_code` of azure's."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        code = response.get("Error", {}).get("Code")
        return code if isinstance(code, str) else None
    code = getattr(error, "error_code", None)
    return code if isinstance(code, str) else None


def _http_status(error: BaseException) -> int | None:
    """Return the status of botocore's, aiohttp's, azure's, gcsfs's or requests' exception."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        named = ((error, "status"), (error, "status_code"), (error, "code"), (response, "status_code"))
        status = next((value for thing, name in named if (value := getattr(thing, name, None))), None)
    return status if isinstance(status, int) else None


def _reason(error: BaseException) -> str:
    text = redacted(" ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__

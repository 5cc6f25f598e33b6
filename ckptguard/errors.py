"""Every error of the product: an exception means "we could not find out".

Damage is never an exception: it is a finding (`ckptguard.model.finding`). Errors
know no HTTP status and no exit code; `cli` and `api` map them, one module each.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar


class CkptGuardError(Exception):
    """Root of all errors.

    Attributes:
        code: Stable name for programs.
        is_retryable: True where the same call may succeed later.
    """

    code: ClassVar[str] = "error"
    is_retryable: ClassVar[bool] = False


class ConfigError(CkptGuardError):
    """A setting, option or store definition cannot be used."""

    code = "config"


class FormatError(CkptGuardError):
    """Bytes that should describe a checkpoint, or a report of one, do not follow their format.

    Attributes:
        problems: Every broken rule, where several are told apart.
    """

    code = "format"

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        """Keep all problems beside the message."""
        super().__init__(message)
        self.problems = tuple(problems)


class ManifestFormatError(FormatError):
    """A manifest breaks its rules; `problems` holds every one, never only the first."""

    code = "manifest_format"

    def __init__(self, problems: Sequence[str]) -> None:
        """Join all problems into one message."""
        super().__init__("; ".join(problems), problems=problems)


class UnsupportedFormatError(FormatError):
    """A well-formed layout, version or transform that this version does not know."""

    code = "unsupported_format"


class LimitExceededError(FormatError):
    """Input asks for more items, bytes or depth than the stated limit."""

    code = "limit_exceeded"


class StoreError(CkptGuardError):
    """A store did not answer a request.

    Attributes:
        key: Store-relative path the request was about.
    """

    code = "store"

    def __init__(self, message: str, *, key: str = "") -> None:
        """Keep the key beside the message."""
        super().__init__(f"{message}: {key}" if key else message)
        self.key = key


class ObjectNotFoundError(StoreError):
    """The store answered, and there is no such object."""

    code = "object_not_found"


class AccessDeniedError(StoreError):
    """The store answered, and refused."""

    code = "access_denied"


class PathEscapeError(StoreError):
    """A path, or the target of a link, lies outside the allowed root; nothing was opened."""

    code = "path_escape"


class StoreUnavailableError(StoreError):
    """No usable answer: timeout, reset, server fault, short read."""

    code = "store_unavailable"
    is_retryable = True


class CanaryError(CkptGuardError):
    """The canary child could not be started or spoken to."""

    code = "canary"
    is_retryable = True


class ServiceError(CkptGuardError):
    """The service did not do what was asked.

    Attributes:
        problems: Every reason, where there are several.
    """

    code = "service"

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        """Keep all problems beside the message."""
        super().__init__(message)
        self.problems = tuple(problems)


class NotFoundError(ServiceError):
    """The service knows no such run, checkpoint, validation, worker, store or token."""

    code = "not_found"


class ConflictError(ServiceError):
    """The same natural key exists with other content, or the state forbids the change."""

    code = "conflict"


class LeaseLostError(ServiceError):
    """The lease expired, was given to another worker, or is finished: nothing was written."""

    code = "lease_lost"


class UnauthorizedError(ServiceError):
    """No token, or one that is unknown, expired or revoked."""

    code = "unauthorized"


class ForbiddenError(ServiceError):
    """The token is good, and does not cover this scope or project."""

    code = "forbidden"


class InvalidRequestError(ServiceError):
    """The request breaks its rules; `problems` lists all of them, and nothing was stored."""

    code = "invalid_request"


class LocationRefusedError(InvalidRequestError):
    """The location lies in no store that the operator allows; the message says how to allow it."""

    code = "location_refused"


class TooLargeError(InvalidRequestError):
    """The request is beyond a stated limit."""

    code = "too_large"


class ServiceUnavailableError(ServiceError):
    """The service, or its database, gave no answer.

    Attributes:
        retry_after_s: When the service says to ask again, in seconds; None: it did not say.
        last_known: The answer that the service remembers from before, as JSON values; proves nothing now.
    """

    code = "service_unavailable"
    is_retryable = True

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[str] = (),
        retry_after_s: float | None = None,
        last_known: Mapping[str, object] | None = None,
    ) -> None:
        """Keep what came instead of an answer."""
        super().__init__(message, problems=problems)
        self.retry_after_s = retry_after_s
        self.last_known = last_known


class TooManyRequestsError(ServiceUnavailableError):
    """The service holds as many waiting requests or streams as it may; come again."""

    code = "too_many_requests"

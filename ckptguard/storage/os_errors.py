"""What an operating-system error means for a store: gone, refused, outside, or unknown."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ckptguard.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    PathEscapeError,
    StoreError,
    StoreUnavailableError,
)

# A name too long to exist does not exist; a file cannot hold a child.
_NOT_FOUND = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
_DENIED = frozenset({errno.EACCES, errno.EPERM})


def from_os_error(error: OSError, key: str) -> StoreError:
    """Translate one error; the caller raises the result `from error`.

    Everything not known to be an answer (EIO, ESTALE, ETIMEDOUT, EMFILE, none at all)
    is StoreUnavailableError: an unknown is never reported as absent.
    """
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno in _NOT_FOUND:
        return ObjectNotFoundError("no such object", key=key)
    if error.errno in _DENIED:
        return AccessDeniedError("access denied", key=key)
    if error.errno == errno.ELOOP:
        return PathEscapeError("a link where none may be", key=key)
    return StoreUnavailableError(reason, key=key)


@contextmanager
def translating_os_errors(key: str) -> Iterator[None]:
    """Turn every OSError of the body into a StoreError about `key`, keeping the cause."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, key) from error

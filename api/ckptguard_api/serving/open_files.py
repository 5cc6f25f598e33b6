"""As many open files as connections may come: the usual 1,024 would be used up by a few hundred of them."""

import resource
from typing import Final

MAX_CONNECTIONS: Final = 4096
KEPT_FREE: Final = 512
"""Files that connections leave to the database, to logs and to workers."""


def allow_open_files() -> None:
    """Raise this process's own bound on open files as far as it needs, and may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + KEPT_FREE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections() -> int:
    """Return how many connections this process takes: one more is answered 503 and closed.

    Fewer than its open files, or strangers who only connect would take the database away from everybody.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - KEPT_FREE))

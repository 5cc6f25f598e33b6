"""What went wrong beside a save that succeeded: one counter for each kind, and one warning.

A training job must never fail because ckptguard had trouble, and must never be silent about it either.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOG: Final = logging.getLogger("ckptguard")
_MAX_TEXT: Final = 500

_lock = threading.Lock()
_counts: Counter[str] = Counter()
_told: set[str] = set()


def count(kind: str, by: int = 1) -> None:
    """Count something that is no trouble."""
    with _lock:
        _counts[kind] += by


def tell(kind: str, message: str) -> None:
    """Count trouble of a kind; the first time in this process, also log one warning."""
    with _lock:
        _counts[kind] += 1
        is_new = kind not in _told
        _told.add(kind)
    if is_new:
        _LOG.warning("%s (said once; counted as %r)", message[:_MAX_TEXT], kind)


@contextmanager
def swallowed(kind: str, what: str) -> Iterator[None]:
    """Let nothing that fails inside reach the training job; it is told as trouble of this kind."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the edge to somebody else's training job
        tell(kind, f"{what}: {type(error).__name__}: {error}")


def counters() -> dict[str, int]:
    """Return how often each thing happened in this process, by kind."""
    with _lock:
        return dict(sorted(_counts.items()))


def forget() -> None:
    """Begin anew, for tests."""
    with _lock:
        _counts.clear()
        _told.clear()

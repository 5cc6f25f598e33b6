"""A daemon thread that does something again and again, and survives what goes wrong in it."""

import threading
from collections.abc import Callable
from typing import Final

import structlog

from ckptguard.errors import CkptGuardError

_LOG: Final = structlog.get_logger("ckptguard.schedule")
_LONGEST_PAUSE_S: Final = 30.0


def survives(name: str, work: Callable[[], bool]) -> bool | None:
    """Do some work, and return what it returned; None: it failed, and the log says how.

    Args:
        name: Of the work, for the log.
        work: Returns whether there is more to do now.
    """
    try:
        return work()
    except CkptGuardError as error:
        _LOG.warning("scheduled work failed", task=name, code=error.code, error=str(error))
    except Exception:  # noqa: BLE001 - a thread's edge: nobody above would tell, and other work goes on
        _LOG.exception("fault in scheduled work", task=name)
    return None


class Repeating:
    """Work on a thread of its own.

    Args:
        name: Of the thread.
        work: One bounded piece; returns whether there is more to do now.
        pause_s: Between pieces that found nothing more; doubled for each failure in a row, up to 30 s.
    """

    def __init__(self, name: str, work: Callable[[], bool], *, pause_s: float) -> None:
        self._work = work
        self._name = name
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def tell_to_stop(self) -> None:
        """Let it end after the piece in hand."""
        self._stopping.set()

    def wait(self, *, within_s: float) -> bool:
        """Wait for its end, but not for long.

        Returns:
            Whether the thread has ended. One that has not dies with the process; its claims expire.
        """
        if self._thread.is_alive():
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            is_more = survives(self._name, self._work)
            failures = failures + 1 if is_more is None else 0
            pause_s = 0.0 if is_more else min(_LONGEST_PAUSE_S, self._pause_s * 2**failures)

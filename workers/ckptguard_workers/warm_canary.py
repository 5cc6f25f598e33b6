"""The canary of a worker that is one process: one child is always warm, torch imported."""

from typing import Final

import structlog

from ckptguard.canary.job import Group
from ckptguard.canary.outcome import CanaryOutcome
from ckptguard.canary.ping import answers
from ckptguard.canary.process import CanaryProcess
from ckptguard.canary.spawn import CanaryWatch, run_in

VERIFY: Final = "verify"
_LOG: Final = structlog.get_logger()


class WarmCanary:
    """Runs each load in a child that waited for it, and warms the next (a `CanaryServer`).

    Used by one thread, which stays: a child dies with the thread that started it.
    """

    def __init__(self) -> None:
        self._spare: CanaryProcess | None = None

    def warm(self) -> None:
        """Start a child, if none waits; does not wait for torch to be imported.

        Raises:
            CanaryError: It could not be started.
        """
        if self._spare is not None and not self._spare.is_alive:
            self.close()
        if self._spare is None:
            self._spare = CanaryProcess.start(is_warm=True)

    def __call__(self, job: bytes, *, mode: str, watch: CanaryWatch) -> CanaryOutcome:
        """Run one job in the child that waits; see `CanaryServer`."""
        del mode
        return self.run(job, group=None, watch=watch)

    def run(self, job: bytes, *, group: Group | None, watch: CanaryWatch) -> CanaryOutcome:
        """As a call, as one rank of a group.

        Raises:
            CanaryError: No child could be started.
        """
        process = self._take(watch)
        try:
            return run_in(process, job, group=group, watch=watch)
        finally:
            self.warm()

    def _take(self, watch: CanaryWatch) -> CanaryProcess:
        """Return the child that waits, or a cold one where that says nothing any more."""
        self.warm()
        process, self._spare = self._spare, None
        assert process is not None  # noqa: S101 - warmed above
        if answers(process, is_wanted=watch.is_wanted):
            return process
        _LOG.warning("the warm canary child does not answer; starting another", pid=process.child.pid)
        process.discard()
        return CanaryProcess.start()

    def close(self) -> None:
        """Give up the child that waits; idempotent."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.discard()

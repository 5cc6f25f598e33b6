"""Tell the service how a start went: it went on, or it failed while loading, or early.

    target = resume_target("run-7")
    with StartFeedback(target) as feedback:
        load(target.path)
        for batch in batches:
            train(batch)
            feedback.step()

Nothing of it fails or slows down the training job: what could not be told is counted
(`ckptguard.integrations.incidents`) and warned of once.
"""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ckptguard.client.address import find_service
from ckptguard.client.client import Client
from ckptguard.integrations import incidents
from ckptguard.integrations.resume import ResumeTarget
from ckptguard.model.service import RestartOutcome
from ckptguard.operations.restart_hosts import hosts_of
from ckptguard.operations.restart_report import Ended, outcome_of_failure, report_end

DEFAULT_STEPS: Final = 20
"""After so many steps a start has gone well: the default of a run's `min_steps`."""
DEADLINE_S: Final = 10.0
"""Of one report; a failure's is waited for, because the process ends after it."""
_NOBODY_IS_TO_BLAME: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""A job that is told to stop says nothing about its checkpoint."""
_MAX_REASON_CHARS: Final = 1000


class StartFeedback:
    """Watches one start; every rank may have one, and only what rank 0 sees as progress is told.

    Args:
        target: What the job resumed from; None: from nothing, and nothing is told.
        steps: After so many it went well: the run's `min_steps`.
        is_telling_progress: False on all ranks but one; None: rank 0 does, by `RANK`.
    """

    def __init__(
        self,
        target: ResumeTarget | None,
        *,
        steps: int = DEFAULT_STEPS,
        is_telling_progress: bool | None = None,
    ) -> None:
        self._target = target
        self._steps = steps
        self._is_teller = (
            os.environ.get("RANK", "0") == "0" if is_telling_progress is None else is_telling_progress
        )
        self._done = 0
        self._is_over = target is None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tell of a failure; torch's CheckpointException is no Exception, and is one."""
        if error is not None and not isinstance(error, _NOBODY_IS_TO_BLAME):
            self.failed(f"{type(error).__name__}: {error}")
        elif self._thread is not None:
            self._thread.join(DEADLINE_S)

    def step(self) -> None:
        """Count one optimizer step; the last of the first `steps` is told, in the background."""
        self._done += 1
        if self._done < self._steps or self._is_over:
            return
        self._is_over = True
        if self._is_teller:
            self._thread = threading.Thread(
                target=self._tell, args=(RestartOutcome.PROGRESSED,), name="ckptguard-feedback", daemon=True
            )
            self._thread.start()

    def failed(self, reason: str = "") -> None:
        """Tell that this start failed; after the first `steps` it says nothing about the checkpoint.

        Any rank may tell it: told twice, it counts once.
        """
        if self._is_over:
            return
        self._is_over = True
        outcome = outcome_of_failure(steps_done=self._done, is_loading=False)
        self._tell(outcome, reason=" ".join(reason.split())[:_MAX_REASON_CHARS])

    def _tell(self, outcome: RestartOutcome, *, reason: str = "") -> None:
        target = self._target
        assert target is not None  # noqa: S101 - else it is over from the beginning
        with incidents.swallowed("start_not_told", f"the service was not told that a start {outcome.value}"):
            address = find_service(os.environ, folder=Path.cwd())
            with Client(address, deadline_s=DEADLINE_S) as client:
                ended = Ended(
                    attempt=target.attempt,
                    outcome=outcome,
                    steps_done=self._done,
                    reason=reason or None,
                    hosts=target.hosts or hosts_of(os.environ),
                )
                report_end(client, target.run, ended)
            incidents.count("starts_told")

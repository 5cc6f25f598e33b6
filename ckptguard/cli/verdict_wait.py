"""Waiting for a verdict on the command line: progress on standard error, an exit code at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ckptguard.cli.exit_codes import ExitCode, exit_code_of_check
from ckptguard.cli.plain_text import printable
from ckptguard.cli.progress_display import showing_progress
from ckptguard.cli.service import say
from ckptguard.cli.service_rows import verdict_of
from ckptguard.client.answers import Validation
from ckptguard.client.client import Client
from ckptguard.clock import SystemClock
from ckptguard.model.policy import Depth
from ckptguard.model.service import ValidationState
from ckptguard.model.verdict import Judgement
from ckptguard.operations.await_verdict import Watch, await_verdict
from ckptguard.scan.progress import Progress

_STATES_WITHOUT_VERDICT: Final = {
    ValidationState.QUEUED.value: "it waits for a worker",
    ValidationState.RUNNING.value: "a worker is at it",
    ValidationState.CANCELLED.value: "it was cancelled: the checkpoint was superseded or deleted",
}


def wait_and_tell(
    client: Client, validation_id: int, *, wait_s: float, depth: Depth
) -> tuple[Validation, ExitCode]:
    """Wait for a verdict, say it, and return it with its exit code: that of `check`.

    Without a verdict at the end it is 20.
    """
    with _showing() as watch:
        seen = await_verdict(client, validation_id, wait_s=wait_s, clock=SystemClock(), watch=watch)
    if seen.verdict is None:
        reason = _STATES_WITHOUT_VERDICT.get(seen.state, f"it is {printable(seen.state)}")
        say(f"validation {seen.id} has no verdict yet: {reason}")
        return seen, ExitCode.TRY_AGAIN
    if seen.is_in_force is False:
        why = f": {seen.why_not_in_force}" if seen.why_not_in_force else ""
        say(f"the verdict {verdict_of(seen)} does not replace the one in force{why}")
    return seen, exit_code_of_verdict(seen, depth)


def exit_code_of_verdict(seen: Validation, depth: Depth) -> ExitCode:
    """Return the exit code of `check` for a verdict of the service."""
    if seen.verdict is None:
        return ExitCode.TRY_AGAIN
    judgement = Judgement(
        verdict=seen.verdict,
        basis=seen.basis,
        assurance=seen.assurance,
        is_retryable=bool(seen.is_retryable),
    )
    return exit_code_of_check(judgement, depth=depth)


@contextmanager
def _showing() -> Iterator[Watch]:
    with showing_progress(sys.stderr) as listener:

        def watch(seen: Validation) -> None:
            progress = seen.progress
            if progress is not None:
                listener(
                    Progress(
                        phase=progress.phase or progress.state,
                        bytes_done=progress.bytes_done or 0,
                        bytes_total=progress.bytes_total or 0,
                    )
                )

        yield watch

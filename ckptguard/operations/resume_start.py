"""One start of a run: find the checkpoint, and tell the service; the next one where it was taken away."""

from dataclasses import dataclass
from typing import Final

from ckptguard.errors import ConflictError
from ckptguard.model.resume import Ending
from ckptguard.operations.resume import Found, Resume
from ckptguard.operations.resume_report import audit_fresh_start, report_start

_MAX_TAKEN_AWAY: Final = 3
"""Checkpoints that are rewritten or deleted between answer and report, before time must help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How a start begins.

    Args:
        found: What to start from, or why from nothing.
        attempt: The name under which the service knows this start.
        branch: The one that the run is in from now on; None: not told.
    """

    found: Found
    attempt: str
    branch: int | None = None


def start(asking: Resume, *, attempt: str, is_reported: bool) -> Started:
    """Find a checkpoint and report the start from it.

    Args:
        asking: Whom, and what.
        attempt: The launcher's name of this start.
        is_reported: Tell the service; a start from nothing over checkpoints is told in any case.

    Raises:
        CkptGuardError: It cannot be found out, or a fresh start was not written down.
    """
    for _ in range(_MAX_TAKEN_AWAY):
        found = asking.find()
        if found.path is None:
            if found.must_be_audited:
                audit_fresh_start(asking.client, asking.question.run, attempt=attempt)
            return Started(found=found, attempt=attempt)
        if not is_reported:
            return Started(found=found, attempt=attempt)
        run = asking.question.run
        try:
            told = report_start(asking.client, run, attempt=attempt, found=found, tell=asking.tell)
        except ConflictError as error:
            asking.tell(f"step {found.step} cannot be started from any more: {error}")
        else:
            return Started(found=found, attempt=told.attempt, branch=told.branch)
    return Started(found=Found(ending=Ending.TRY_AGAIN), attempt=attempt)

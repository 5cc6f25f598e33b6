"""What `resume` tells the service: where a run starts from, or that it starts from nothing."""

from typing import Final, NamedTuple

from ckptguard.client.answers import Restart, Target
from ckptguard.client.client import Client
from ckptguard.errors import CkptGuardError, ConflictError, NotFoundError
from ckptguard.model.service import RestartOutcome
from ckptguard.operations.resume import Found, Tell

_MAX_ATTEMPT_CHARS: Final = 170


class ToldStart(NamedTuple):
    """Under which name a start is known.

    Args:
        attempt: Another one than was asked for where a launcher starts twice under one name, from
            different checkpoints.
        branch: Of the run from now on; None: the report failed, or there was nothing to tell.
    """

    attempt: str
    branch: int | None


def report_start(client: Client, run: str, *, attempt: str, found: Found, tell: Tell) -> ToldStart:
    """Tell the service where the run starts from; what it says does not change where that is.

    A report that fails is told, loudly: the run then opens no branch, and restart feedback has
    no beginning.

    Raises:
        ConflictError: The checkpoint was rewritten or deleted since the service named it.
    """
    if found.target is None:
        return ToldStart(attempt, None)
    try:
        try:
            told = _report_resumed(client, run, attempt, found.target)
        except ConflictError:
            attempt = f"{attempt[:_MAX_ATTEMPT_CHARS]}/{found.target.id}"
            told = _report_resumed(client, run, attempt, found.target)
    except ConflictError:
        raise  # under a name of its own: it is the checkpoint that a run cannot go on from
    except CkptGuardError as error:
        tell(f"WARNING: the start could not be reported, later saves may look like a step back: {error}")
        return ToldStart(attempt, None)
    if told.opened:
        tell(f"the run goes on from step {found.step}, as branch {told.branch}")
    return ToldStart(attempt, told.branch)


def _report_resumed(client: Client, run: str, attempt: str, target: Target) -> Restart:
    return client.report_restart(
        run, attempt=attempt, outcome=RestartOutcome.RESUMED, checkpoint_id=target.id
    )


def audit_fresh_start(client: Client, run: str, *, attempt: str) -> None:
    """Have the service write down that a run starts from nothing although checkpoints may exist.

    Raises:
        CkptGuardError: It was not written down: the start must not happen.
    """
    try:
        _report_fresh(client, run, attempt)
    except NotFoundError:
        client.create_run(run)  # the run is unknown, and this start is its first fact
        _report_fresh(client, run, attempt)


def _report_fresh(client: Client, run: str, attempt: str) -> None:
    client.report_restart(run, attempt=attempt, outcome=RestartOutcome.RESUMED, fresh_despite=run)

"""What became of a start, told to the service: restart feedback (design §7)."""

from dataclasses import dataclass

from ckptguard.client.answers import Restart
from ckptguard.client.client import Client
from ckptguard.errors import ConfigError
from ckptguard.model.service import RestartOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a start came from, as `resume --format env` handed it to the job.

    Args:
        step: Of the checkpoint; None: not known.
        branch: That the start opened; None: not known.
    """

    step: int | None = None
    branch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a start.

    Args:
        attempt: Its name, as `resume` reported it.
        outcome: What became of it.
        steps_done: Steps since the checkpoint; None: not known.
        reason: For a person.
        hosts: That took part.
    """

    attempt: str
    outcome: RestartOutcome
    steps_done: int | None = None
    reason: str | None = None
    hosts: tuple[str, ...] = ()


def outcome_of_failure(*, steps_done: int | None, is_loading: bool) -> RestartOutcome:
    """Return the word for a failure; whether it counts against the checkpoint is the service's to say."""
    return RestartOutcome.FAILED_LOADING if is_loading or steps_done == 0 else RestartOutcome.FAILED_EARLY


def steps_since(origin: Origin, reached: int) -> int:
    """Return how many steps a job has done that reached a step.

    Raises:
        ConfigError: Nothing says where it began, or it would have gone back.
    """
    if origin.step is None:
        msg = "--step needs to know where the job began: --from-step N, or CKPTGUARD_RESUME_STEP"
        raise ConfigError(msg)
    if reached < origin.step:
        msg = f"step {reached} lies before step {origin.step}, where the job began"
        raise ConfigError(msg)
    return reached - origin.step


def steps_saved(client: Client, run: str, origin: Origin) -> int | None:
    """Return how far a start has come by what it saved since; None: nothing says so.

    Its saves are those of the branch that it opened.
    """
    if origin.step is None or origin.branch is None:
        return None
    newest = next(client.checkpoints(run=run, limit=1), None)
    if newest is None or newest.branch != origin.branch or newest.step <= origin.step:
        return None
    return newest.step - origin.step


def report_end(client: Client, run: str, ended: Ended) -> Restart:
    """Tell the service; told twice, it counts once.

    Raises:
        CkptGuardError: It was not told.
    """
    return client.report_restart(
        run,
        attempt=ended.attempt,
        outcome=ended.outcome,
        nodes=list(ended.hosts) or None,
        steps_done=ended.steps_done,
        detail=ended.reason,
    )

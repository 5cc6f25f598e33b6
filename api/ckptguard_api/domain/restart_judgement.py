"""What failing restarts say about the checkpoint they came from (design §7).

A verdict proves that bytes load; it cannot prove that the job does. Failures point at the checkpoint only
where the nodes are an unlikelier cause, and by themselves take a run at most one step back.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from ckptguard.model.service import RestartOutcome
from ckptguard_api.domain.resume import Order

MIN_FAILURES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A start that failed, and counts (`counts_against`).

    Args:
        checkpoint_id: Where it started from.
        attempt: The launcher's name of the start; told in two ways it is still one.
        nodes: Hosts that took part; empty: not known.
    """

    checkpoint_id: int
    attempt: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartJudgement:
    """What is to change.

    Args:
        suspect: Checkpoint to pass over from now on.
        cleared: Those to use again: an older one fails as well, so it was not them.
        is_failing: The run's restarts fail whatever they start from: a person must look.
    """

    suspect: int | None = None
    cleared: frozenset[int] = frozenset()
    is_failing: bool = False


NOTHING: Final = RestartJudgement()


def counts_against(outcome: RestartOutcome, steps_done: int | None, *, min_steps: int) -> bool:
    """Say whether a start speaks against its checkpoint: it failed in load, or before `min_steps`.

    Args:
        outcome: What became of it.
        steps_done: Steps before it failed; None: not told, and `failed_early` says so itself.
        min_steps: Of the run.
    """
    if outcome is RestartOutcome.FAILED_EARLY:
        return steps_done is None or steps_done < min_steps
    return outcome is RestartOutcome.FAILED_LOADING


def is_blamed(failures: Sequence[Failure]) -> bool:
    """Say whether failures from one checkpoint speak against it and not against nodes.

    Three starts in all; and where nodes are known, two of them had none in common: a broken node fails
    whatever it loads.
    """
    if len({failure.attempt for failure in failures}) < MIN_FAILURES:
        return False
    known = {failure.nodes for failure in failures if failure.nodes}
    return not known or any(one.isdisjoint(other) for one, other in combinations(known, 2))


def judge_restarts(
    failures: Sequence[Failure],
    *,
    suspects: Collection[int],
    order: Mapping[int, Order],
    can_step_back: bool,
    is_failing: bool,
) -> RestartJudgement:
    """Judge the last failure in the light of those before it.

    Args:
        failures: Of the run, since it last made progress, oldest first; the last one is new.
        suspects: Checkpoints that are suspect now.
        order: Place of each checkpoint among the failures, in the order of the run.
        can_step_back: An older checkpoint is there to start from.
        is_failing: The run's restarts are known to fail whatever they start from.

    Returns:
        What is to change. At most one checkpoint becomes suspect between two times of progress; restarts
        never take the last checkpoint away that a run can start from.
    """
    blamed = failures[-1].checkpoint_id
    if is_failing or blamed in suspects:
        return NOTHING
    if not is_blamed([failure for failure in failures if failure.checkpoint_id == blamed]):
        return NOTHING
    failed = {failure.checkpoint_id for failure in failures}
    newer = frozenset(other for other in failed & set(suspects) if order[other] > order[blamed])
    if newer or not can_step_back:
        return RestartJudgement(cleared=newer, is_failing=True)
    return RestartJudgement(suspect=blamed)

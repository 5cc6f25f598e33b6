"""Starts of a run: several reports of one launcher's attempt, told as one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ckptguard.model.service import RestartOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start, and what became of it so far.

    Args:
        attempt: The launcher's name of it.
        outcome: As last reported.
        checkpoint_id: Where it came from; None: from nothing.
        step: Of that checkpoint.
        branch: That it opened or went on in.
        started_at: First report.
        reported_at: Last report.
        num_nodes: That were told; 0: none were.
        steps_done: As last told; None: not told.
        detail: What the launcher said last; None: nothing.
    """

    attempt: str
    outcome: RestartOutcome
    checkpoint_id: int | None
    step: int | None
    branch: int
    started_at: datetime
    reported_at: datetime
    num_nodes: int = 0
    steps_done: int | None = None
    detail: str | None = None


def starts_of(reports: Iterable[Any]) -> list[Start]:
    """Return the starts that reports tell of, the last first.

    Args:
        reports: Rows of `restarts` with `step`, the last first.
    """
    return [_start(attempt, told) for attempt, told in by_attempt(reports).items()]


def by_attempt(reports: Iterable[Any]) -> dict[str, list[Any]]:
    """Return rows of `restarts` by the start that they tell of, all in the order given."""
    found: dict[str, list[Any]] = {}
    for report in reports:
        found.setdefault(report.attempt_key, []).append(report)
    return found


def _start(attempt: str, told: list[Any]) -> Start:
    last, first = told[0], told[-1]
    origin = next((report for report in told if report.checkpoint_id is not None), last)
    return Start(
        attempt=attempt,
        outcome=RestartOutcome(last.outcome),
        checkpoint_id=origin.checkpoint_id,
        step=origin.step,
        branch=last.branch,
        started_at=first.reported_at,
        reported_at=last.reported_at,
        num_nodes=max(len(report.nodes) for report in told),
        steps_done=next((report.steps_done for report in told if report.steps_done is not None), None),
        detail=next((report.detail for report in told if report.detail), None),
    )

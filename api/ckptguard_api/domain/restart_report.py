"""What a launcher tells about one start of a run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptguard.errors import InvalidRequestError
from ckptguard.model.manifest_laws import MAX_INTEGER, label_problems
from ckptguard.model.service import RestartOutcome
from ckptguard_api.domain.reasons import text_problems

MAX_NODES: Final = 20_000
MAX_DETAIL_CHARS: Final = 4000
MAX_ATTEMPT_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartReport:
    """One start, and what became of it.

    Args:
        attempt: The launcher's name of this start.
        outcome: What became of it.
        checkpoint_id: Where it started from; None: from nothing, or as its `resumed` said.
        nodes: Hosts that took part.
        steps_done: Before it failed or was told to go on well.
        detail: For a person.
        is_fresh_despite: An operator wants a start from nothing though checkpoints exist.
        repeated_run: Name of the run, once more, for `is_fresh_despite`.

    Raises:
        InvalidRequestError: With every broken rule.
    """

    attempt: str
    outcome: RestartOutcome
    checkpoint_id: int | None = None
    nodes: tuple[str, ...] = ()
    steps_done: int | None = None
    detail: str | None = None
    is_fresh_despite: bool = False
    repeated_run: str | None = None

    def __post_init__(self) -> None:
        """Hold all bounds."""
        problems = list(_problems(self))
        if problems:
            msg = "the report of a restart breaks its rules"
            raise InvalidRequestError(msg, problems=problems)


def _problems(report: RestartReport) -> Iterator[str]:
    yield from label_problems(report.attempt, at="/attempt")
    if len(report.attempt) > MAX_ATTEMPT_CHARS:
        yield f"/attempt: {len(report.attempt)} characters, at most {MAX_ATTEMPT_CHARS}"
    if len(report.nodes) > MAX_NODES:
        yield f"/nodes: {len(report.nodes)} nodes, at most {MAX_NODES}"
    for index, node in enumerate(report.nodes[:MAX_NODES]):
        yield from label_problems(node, at=f"/nodes/{index}")
    if report.steps_done is not None and not 0 <= report.steps_done <= MAX_INTEGER:
        yield f"/steps_done: not in 0..{MAX_INTEGER}"
    if report.detail is not None:
        yield from text_problems(report.detail, at="/detail", max_chars=MAX_DETAIL_CHARS)
    if not report.is_fresh_despite:
        return
    if report.outcome is not RestartOutcome.RESUMED:
        yield "/is_fresh_despite: only with the outcome `resumed`"
    if report.checkpoint_id is not None:
        yield "/checkpoint_id: a fresh start comes from none"

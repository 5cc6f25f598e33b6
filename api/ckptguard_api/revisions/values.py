"""What one look at the revisions saw."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

RunKey = tuple[int, str]
"""Project id and the run's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRevision:
    """A run as it stood when the query ran.

    Args:
        run_id: Its row.
        revision: Raised by every change that a resume target of it may show.
    """

    run_id: int
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """What one query saw, at one moment.

    Args:
        asked: Runs that it was asked about; others may exist.
        runs: Those asked for that exist.
        named: All rows of table `revisions`, e.g. `tokens`.
    """

    asked: AbstractSet[RunKey]
    runs: Mapping[RunKey, RunRevision]
    named: Mapping[str, int]


class RevisionSource(Protocol):
    """A database, asked by an event loop; one question at a time."""

    async def ask(self, keys: Sequence[RunKey]) -> Revisions:
        """Return what is committed when the query starts.

        Raises:
            ServiceUnavailableError: The database gave no answer.
        """
        ...

    async def close(self) -> None:
        """Let the connection go."""
        ...


def revisions_of(keys: Iterable[RunKey], rows: Iterable[Sequence[Any]]) -> Revisions:
    """Return rows of (project id or None, name, run id, revision) as values."""
    runs: dict[RunKey, RunRevision] = {}
    named: dict[str, int] = {}
    for project_id, name, run_id, revision in rows:
        if project_id is None:
            named[name] = revision
        else:
            runs[project_id, name] = RunRevision(run_id=run_id, revision=revision)
    return Revisions(asked=frozenset(keys), runs=runs, named=named)

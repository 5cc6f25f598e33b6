"""The start of this process, as far as it is known: which branch of which run its saves belong to.

Every start of a run from a checkpoint opens a branch. A save whose registration is sent late, when the run
has gone on elsewhere, still belongs to the branch of the job that made it. What the job asked by itself
(`resume_target`, `handed_target`) wins over what its launcher handed down (`resume --format env`): ranks
that torchrun restarts, and that ask anew, still have the variables of the start before.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptguard.integrations import incidents
from ckptguard.operations.resume_environment import handed_down


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStart:
    """A start of a run.

    Args:
        run: Its name.
        branch: That the start opened; None: it was not reported, and the service chooses.
    """

    run: str
    branch: int | None

    def branch_of(self, run: str | None) -> int | None:
        """Return the branch of a run's saves; None: the service's choice."""
        return self.branch if run == self.run else None


class _OfProcess:
    def __init__(self) -> None:
        self.asked: KnownStart | None = None


_OF_PROCESS: Final = _OfProcess()


def note_start(run: str, branch: int | None) -> None:
    """Remember what this process asked by itself; the last one counts."""
    _OF_PROCESS.asked = KnownStart(run=run, branch=branch)


def forget_start() -> None:
    """Begin anew, for tests."""
    _OF_PROCESS.asked = None


def known_start(environment: Mapping[str, str] | None = None) -> KnownStart | None:
    """Return the start of this process; None: nobody told.

    Args:
        environment: Of the process; None: its own.
    """
    if _OF_PROCESS.asked is not None:
        return _OF_PROCESS.asked
    with incidents.swallowed("start_unreadable", "the branch that the launcher handed down is not used"):
        handed = handed_down(os.environ if environment is None else environment)
        if handed.run is not None and handed.branch is not None:
            return KnownStart(run=handed.run, branch=handed.branch)
    return None

"""The steps of a process, told in a trace; before any of them it can stop, or dawdle.

A process that stops is as `SIGSTOP` leaves it: whoever waits for that can kill it there, or any other, and
let it go on. So a kill falls between two steps that were chosen, and nobody has to guess a moment.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

BEGINS_TO_SAVE: Final = "begin to save"
HAS_SAVED: Final = "be told that it is saved"
ENDS: Final = "end"
"""Steps of a job around its save."""
STOPPED: Final = "stopped"
_BY_CHANCE: Final = {
    ".ckptguard.manifest.json.": "the draft of the manifest",
    "ckptguard.saving.": "the marker",
}
_FOLDER: Final = "GUARDED_KILLS_FOLDER"
_TRACE: Final = "GUARDED_KILLS_TRACE"
_STOPS_BEFORE: Final = "GUARDED_KILLS_STOPS_BEFORE"
_DAWDLES_S: Final = "GUARDED_KILLS_DAWDLES_S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is watched.

    Args:
        folder: Path or URL of the folder whose files are watched.
        trace: File that each step becomes a line of, before it is done.
        stops_before: Step before which the process stops itself; "" for none.
        dawdles_s: The process waits up to this long before each step, at random.
    """

    folder: str
    trace: str
    stops_before: str = ""
    dawdles_s: float = 0.0

    def to_environment(self) -> dict[str, str]:
        """Return it as variables, for processes that this one starts."""
        names = (_FOLDER, _TRACE, _STOPS_BEFORE, _DAWDLES_S)
        return dict(zip(names, map(str, asdict(self).values()), strict=True))

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Return what the process that started this one says; None where it says nothing."""
        if _TRACE not in environment:
            return None
        return cls(
            folder=environment[_FOLDER],
            trace=environment[_TRACE],
            stops_before=environment[_STOPS_BEFORE],
            dawdles_s=float(environment[_DAWDLES_S]),
        )


class Steps:
    """The steps of one process; those of one name are numbered from the second on (`#2`)."""

    def __init__(self, what: Watch) -> None:
        self._what = what
        self._trace = os.open(what.trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._chance = random.Random(os.getpid())  # noqa: S311 - any delay will do
        self._seen: dict[str, int] = {}

    def reach(self, step: str) -> None:
        """Tell that a step comes next; stop before it, if it is the one."""
        self._seen[step] = self._seen.get(step, 0) + 1
        name = step if self._seen[step] == 1 else f"{step}#{self._seen[step]}"
        if self._what.dawdles_s:
            time.sleep(self._chance.uniform(0, self._what.dawdles_s))
        if name == self._what.stops_before:
            os.write(self._trace, f"{STOPPED} {os.getpid()}\n".encode())
            # To this very thread: sent to the process it may be another that takes it, and this one runs on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        os.write(self._trace, f"{name}\n".encode())


def called(name: str) -> str:
    """Return what a file is called in steps, also one whose name is partly chance."""
    return next((word for head, word in _BY_CHANCE.items() if name.startswith(head)), name)


def tell(trace: str, word: str) -> None:
    """Add a line to a trace."""
    with Path(trace).open("a", encoding="utf-8") as stream:
        stream.write(f"{word}\n")

"""What a process does to the files of one folder, told in a trace; it can die, or dawdle, before any of it.

Python tells an audit hook of every file that is opened, renamed or removed, before it happens. So a process
can be killed between any two of these operations without a change of the code that is under test.
"""

import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "GUARDED_KILLS_FOLDER"
TRACE: Final = "GUARDED_KILLS_TRACE"
DIES_BEFORE: Final = "GUARDED_KILLS_DIES_BEFORE"
DAWDLES_S: Final = "GUARDED_KILLS_DAWDLES_S"
_MANIFEST_DRAFT: Final = ".ckptguard.manifest.json."
_WRITES: Final = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is watched.

    Args:
        folder: Files in it.
        trace: File that each event becomes a line of.
        dies_before: Event before which the process kills itself, as `kill -9` would; "" for none.
        dawdles_s: The process waits up to this long before each event, at random.
    """

    folder: str
    trace: str
    dies_before: str = ""
    dawdles_s: float = 0.0

    def to_environment(self) -> dict[str, str]:
        """Return it as variables, for processes that this one starts."""
        names = (FOLDER, TRACE, DIES_BEFORE, DAWDLES_S)
        return dict(zip(names, map(str, asdict(self).values()), strict=True))


def watch(what: Watch) -> None:
    """Watch this process from now on, to its end."""
    trace = os.open(what.trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())  # noqa: S311 - any delay will do
    seen: dict[str, int] = {}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        name = _name_of(event, arguments, what.folder)
        if name is None:
            return
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            name = f"{name}#{seen[name]}"
        if what.dawdles_s:
            time.sleep(chance.uniform(0, what.dawdles_s))
        if name == what.dies_before:
            os.write(trace, b"dead\n")
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(trace, f"{name}\n".encode())

    sys.addaudithook(hook)


def tell(trace: str, word: str) -> None:
    """Add a line to a trace."""
    with Path(trace).open("a", encoding="utf-8") as stream:
        stream.write(f"{word}\n")


def _name_of(event: str, arguments: tuple[Any, ...], folder: str) -> str | None:
    """Return what is done to which file; None where it is none of ours, or is only read."""
    if event == "os.rename":
        return _in_folder("rename to", arguments[1], folder)
    if event == "os.remove":
        return _in_folder("remove", arguments[0], folder)
    if event == "os.mkdir":
        return "make folder" if os.fspath(arguments[0]) == folder else None
    if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
        return None
    path, flags = os.fsdecode(arguments[0]), arguments[2] or 0
    if path == folder and flags & os.O_DIRECTORY:
        return "sync folder"
    return _in_folder("create", path, folder) if flags & _WRITES else None


def _in_folder(verb: str, path: Any, folder: str) -> str | None:  # noqa: ANN401 - whatever the event holds
    above, _, name = os.fsdecode(path).rpartition("/")
    if above != folder:
        return None
    return f"{verb} {'the draft of the manifest' if name.startswith(_MANIFEST_DRAFT) else name}"


def _watch_as_told() -> None:
    """Watch where the process that started this one says so."""
    if TRACE in os.environ:
        watch(
            Watch(
                folder=os.environ[FOLDER],
                trace=os.environ[TRACE],
                dies_before=os.environ[DIES_BEFORE],
                dawdles_s=float(os.environ[DAWDLES_S]),
            )
        )


_watch_as_told()

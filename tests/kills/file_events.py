"""What a process does to the files of one folder, as steps.

Python tells an audit hook of every file that is opened, renamed or removed, before it happens. So a process
can be stopped between any two of these operations without a change of the code that is under test.
"""

import os
import sys
from typing import Any, Final

from tests.kills.steps import Steps, called

_WRITES: Final = os.O_WRONLY | os.O_RDWR


def watch_files(folder: str, steps: Steps) -> None:
    """Make steps of what this process does to the files of a folder, from now on, to its end."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        name = _name_of(event, arguments, folder)
        if name is not None:
            steps.reach(name)

    sys.addaudithook(hook)


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
    return f"{verb} {called(name)}"

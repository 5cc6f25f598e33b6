"""Paths that a `.metadata` names, made safe before anything is opened."""

import re
from typing import Final

_MAX_CHARS: Final = 4096
_DRIVE: Final = re.compile(r"[A-Za-z]:|\\")


def contained(path: str) -> str | None:
    """Return a relative path in its plain form, or None if it may lead out of the checkpoint.

    Stock torch joins the path to the folder and opens the result, whatever it is
    (`FileSystem.concat_path`, torch 2.13); so `..` anywhere is refused, even where it
    would come back in, and so are drives and roots of other systems.
    """
    if len(path) > _MAX_CHARS or "\0" in path or path.startswith("/") or _DRIVE.match(path):
        return None
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if not segments or ".." in segments or ".." in path.replace("\\", "/").split("/"):
        return None
    return "/".join(segments)

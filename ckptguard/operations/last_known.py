"""The last good answer, kept on this machine for the time when the service gives none."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckptguard.client.answers import FileSeen, ResumeAnswer
from ckptguard.client.decode import decode, encode, parse_json
from ckptguard.errors import ServiceError

_MAX_BYTES: Final = 256 << 20
_MAX_FILES: Final = 500_000
"""Evidence of more files is not kept; then only totals can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A good answer, and what its checkpoint looked like.

    Args:
        answer: As the service gave it.
        evidence: The files; empty: not known.
    """

    answer: ResumeAnswer
    evidence: tuple[FileSeen, ...] = ()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return where answers are kept: `CKPTGUARD_CACHE_DIR`, else the user's cache folder."""
    if given := environment.get("CKPTGUARD_CACHE_DIR"):
        return Path(given)
    base = environment.get("XDG_CACHE_HOME") or str(
        Path(environment.get("HOME", "~")).expanduser() / ".cache"
    )
    return Path(base) / "ckptguard"


class LastKnown:
    """One file per question; a file that cannot be read or written is as if it were not there.

    Args:
        folder: Where; made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, question: Mapping[str, Any], remembered: Remembered) -> None:
        """Keep a good answer, in one step, readable by its owner only."""
        evidence: Sequence[FileSeen] = remembered.evidence if len(remembered.evidence) <= _MAX_FILES else ()
        value = {"schema": 1, "answer": encode(remembered.answer), "evidence": encode(evidence)}
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".answer-")  # mode 0600
            try:
                with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                    json.dump(value, stream)
                Path(name).replace(self._file(question))
            except OSError:
                Path(name).unlink(missing_ok=True)

    def recall(self, question: Mapping[str, Any]) -> Remembered | None:
        """Return what was kept for a question, if it is whole and this user's own."""
        try:
            with self._file(question).open("rb") as stream:
                if os.fstat(stream.fileno()).st_uid not in {os.getuid(), 0}:
                    return None
                value = parse_json(stream.read(_MAX_BYTES))
            return decode(Remembered, value, at="kept answer")
        except (OSError, ServiceError):
            return None

    def _file(self, question: Mapping[str, Any]) -> Path:
        text = json.dumps(question, sort_keys=True, default=str)
        return self._folder / f"resume-{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

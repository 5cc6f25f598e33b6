"""A folder of registrations that wait: one file each, written in one step, oldest first by name."""

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ckptguard.errors import FormatError
from ckptguard.integrations.registration.entry import Entry, parse_entry, shortened, to_json

SPOOL_VARIABLE: Final = "CKPTGUARD_SPOOL"
MAX_ENTRIES: Final = 1000
MAX_BYTES: Final = 256 << 20
"""Of all that wait; beyond either limit the oldest is dropped: its manifest still lies beside its shards."""
MAX_REFUSED: Final = 200
_MAX_ENTRY_BYTES: Final = 256 << 20
_REFUSED: Final = "refused"
_DRAFT: Final = ".draft-"


def spool_folder(environment: Mapping[str, str]) -> Path:
    """Return `CKPTGUARD_SPOOL`, else a folder among the user's state (XDG)."""
    if given := environment.get(SPOOL_VARIABLE):
        return Path(given)
    base = environment.get("XDG_STATE_HOME") or str(
        Path(environment.get("HOME", "~")).expanduser() / ".local" / "state"
    )
    return Path(base) / "ckptguard" / "spool"


class Spool:
    """The folder; several processes may use it at once.

    Only files of this user are read: an entry makes the job's token register something.

    Args:
        folder: Made when something is put, readable by its owner only.
        max_entries: That wait.
        max_bytes: Of all that wait.
    """

    def __init__(self, folder: Path, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    def put(self, entry: Entry) -> tuple[str, int]:
        """Keep an entry durably; return its name, and how many older ones were dropped for it.

        Raises:
            OSError: It was not kept.
        """
        data = to_json(entry)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        dropped = self._make_room(len(data))
        moment = f"{entry.saved_at:%Y%m%dT%H%M%S.%f}"
        name = f"{moment}-{secrets.token_hex(4)}.json"
        self._write(data, self.folder / name)
        return name, dropped

    def names(self) -> list[str]:
        """Return what waits, oldest first; nothing where the folder cannot be listed."""
        return _names(self.folder)

    def refused(self) -> list[str]:
        """Return what the service would not have."""
        return _names(self.folder / _REFUSED)

    def read(self, name: str) -> Entry | None:
        """Read one that waits; None where another process was quicker.

        Raises:
            FormatError: It is no entry, or another user's.
            OSError: It could not be read.
        """
        return _read(self.folder / name)

    def read_refused(self, name: str) -> Entry | None:
        """Read one that was refused."""
        return _read(self.folder / _REFUSED / name)

    def remove(self, name: str) -> None:
        """Forget one that was sent."""
        (self.folder / name).unlink(missing_ok=True)

    def refuse(self, name: str, reason: str) -> None:
        """Put one aside, with the reason; of those put aside the oldest are dropped.

        Raises:
            OSError: It still waits.
        """
        aside = self.folder / _REFUSED
        aside.mkdir(mode=0o700, exist_ok=True)
        try:
            entry = _read(self.folder / name)
        except (FormatError, OSError):  # no entry at all: as it is
            (self.folder / name).replace(aside / name)
            entry = None
        if entry is not None:
            self._write(to_json(replace(entry, refused=shortened(reason))), aside / name)
            self.remove(name)
        for old in _names(aside)[:-MAX_REFUSED]:
            with suppress(OSError):
                (aside / old).unlink()

    def _write(self, data: bytes, target: Path) -> None:
        """Write a file that only its owner can read, whole or not at all, through no link that lies there."""
        descriptor, draft = tempfile.mkstemp(dir=self.folder, prefix=_DRAFT)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            Path(draft).replace(target)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise

    def _make_room(self, needed_bytes: int) -> int:
        sizes = dict(self._sizes())
        dropped = 0
        for name in sorted(sizes):
            if len(sizes) < self._max_entries and sum(sizes.values()) + needed_bytes <= self._max_bytes:
                break
            with suppress(OSError):
                self.remove(name)
                dropped += 1
            del sizes[name]
        return dropped

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for name in self.names():
            with suppress(FileNotFoundError):
                yield name, (self.folder / name).stat().st_size


def _names(folder: Path) -> list[str]:
    try:
        listed = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []
    return sorted(name for name in listed if name.endswith(".json") and not name.startswith("."))


def _read(file: Path) -> Entry | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        if os.fstat(descriptor).st_uid not in {os.getuid(), 0}:
            msg = "it belongs to another user"
            raise FormatError(msg)
        return parse_entry(stream.read(_MAX_ENTRY_BYTES))

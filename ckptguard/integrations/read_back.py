"""For trainers that write shards past DCP's file system: what they saved is read back, off the training path.

Another process of low priority reads the files right after the save and makes the manifest
(`origin: read_back`). Such a manifest proves that nothing changed since; whether all files came whole and
from one save, it cannot know: provenance is `unchanged`, never `proven`.
"""

import atexit
import itertools
import os
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptguard.client.address import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from ckptguard.errors import StoreUnavailableError
from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.integrations import incidents
from ckptguard.integrations import registration as background
from ckptguard.integrations.dcp.announcement import announcement, registration
from ckptguard.integrations.dcp.save_facts import Place, SaveFacts, folder_text, place_of
from ckptguard.integrations.known_start import known_start
from ckptguard.model.manifest import MANIFEST_NAME, Manifest
from ckptguard.operations.manifest import delete_manifest, write_manifest

EXIT_DEADLINE_S: Final = 30.0
"""A process that ends waits no longer for what it saved last to be read back."""
MAX_WAITING: Final = 4
"""Saves that wait to be read back; beyond, the oldest gets no manifest."""
_MAX_KNOWN: Final = 1024
_LOW_PRIORITY: Final = 10
_MAX_TOLD: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Save:
    folder: str
    number: int
    facts: SaveFacts


class ReadBacks:
    """Reads saves back, one after the other. Safe to share between threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._waiting: deque[_Save] = deque()
        self._current: _Save | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def begin(self, folder: str, facts: SaveFacts) -> None:
        """Remove the manifest of an earlier save, and tell the service; call it before anything is written.

        Nothing that fails here reaches the caller.
        """
        with incidents.swallowed("old_manifest_stays", f"an old manifest in {folder} was not removed"):
            self._begin(folder_text(folder))
        with incidents.swallowed("not_announced", "the save was not announced"):
            _announce(folder_text(folder), facts)

    def finish(self, folder: str, facts: SaveFacts) -> None:
        """Have a save read back and registered; call it once every rank has written all of it."""
        with incidents.swallowed("manifest_failed", f"{folder} is not read back"), self._changed:
            number = self._newest.get(folder_text(folder)) or self._next(folder_text(folder))
            self._waiting.append(_Save(folder=folder_text(folder), number=number, facts=facts))
            if len(self._waiting) > MAX_WAITING:
                late = self._waiting.popleft()
                incidents.tell("read_back_late", f"{late.folder} is not read back: storage is too slow")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ckptguard-read-back", daemon=True)
                self._thread.start()

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything was read back; say whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    def stop(self) -> None:
        """End what is being read, and drop what waits."""
        with self._changed:
            self._waiting.clear()
            self._newest.clear()
            self._end_process()

    def _begin(self, folder: str) -> None:
        with self._changed:
            self._next(folder)
            if self._current is not None and self._current.folder == folder:
                self._end_process()
            delete_manifest(Path(folder) / MANIFEST_NAME)

    def _next(self, folder: str) -> int:
        self._newest[folder] = number = next(self._numbers)
        self._newest.move_to_end(folder)
        while len(self._newest) > _MAX_KNOWN:
            self._newest.popitem(last=False)
        return number

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._current = self._waiting.popleft() if self._waiting else None
                if self._current is None:
                    self._thread = None
                    self._changed.notify_all()
                    return
            with incidents.swallowed("manifest_failed", f"no manifest of {self._current.folder}"):
                self._read_back(self._current)

    def _read_back(self, save: _Save) -> None:
        place = place_of(save.facts, save.folder)
        manifest = parse_manifest(self._made_by_another_process(save, run=place.run))
        with self._changed:
            if self._newest.get(save.folder) != save.number:
                return  # another save goes there meanwhile
            written = write_manifest(Path(save.folder), manifest)
        incidents.count("saves_read_back")
        _register(save.facts, place, manifest, written)

    def _made_by_another_process(self, save: _Save, *, run: str) -> bytes:
        step = () if save.facts.step is None else ("--step", str(save.facts.step))
        command = [sys.executable, "-m", "ckptguard", "manifest", save.folder, "--run", run, *step]
        with self._changed:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_without_tokens()
            )
            self._process = process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _LOW_PRIORITY)
        written, told = process.communicate()
        with self._changed:
            self._process = None
        if process.returncode != 0:
            why = told.decode(errors="replace").strip()[-_MAX_TOLD:]
            msg = f"it could not be read back (exit code {process.returncode}): {why}"
            raise StoreUnavailableError(msg, key=save.folder)
        return written


def _without_tokens() -> dict[str, str]:
    """Return an environment for a process that opens checkpoint files: none of them may get a token."""
    hidden = {TOKEN_VARIABLE, TOKEN_FILE_VARIABLE}
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _announce(folder: str, facts: SaveFacts) -> None:
    place = place_of(facts, folder)
    call = announcement(facts, place, None, start=known_start())
    if call is not None:
        background.announce(call)


def _register(facts: SaveFacts, place: Place, manifest: Manifest, written: bytes) -> None:
    if facts.run is None:
        return
    with incidents.swallowed("not_registered", f"the save in {place.folder} is not registered"):
        background.register(registration(facts, place, manifest, written, start=known_start()))


READ_BACKS: Final = ReadBacks()
"""Of this process."""


@atexit.register
def _settle_at_exit() -> None:
    if not READ_BACKS.settle(EXIT_DEADLINE_S):
        incidents.tell("read_back_late", "the last save was not read back in time: use ckptguard adopt")
        READ_BACKS.stop()

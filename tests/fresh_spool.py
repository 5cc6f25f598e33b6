"""The save side as a fresh process has it: an empty spool, and no service that is known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ckptguard.integrations import incidents
from ckptguard.integrations.registration import discard, sender
from ckptguard.integrations.registration.entry import Entry
from ckptguard.integrations.registration.spool import Spool

_ENDS_S: Final = 5.0


def fresh_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    """Yield the spool; counters, what is held and the sender begin anew, before and after."""
    monkeypatch.delenv("CKPTGUARD_URL", raising=False)
    monkeypatch.setenv("CKPTGUARD_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("CKPTGUARD_DATA_DIR", str(tmp_path / "no-service"))
    incidents.forget()
    discard()
    sender._OF_PROCESS.reset()
    spool = Spool(tmp_path / "spool")
    yield spool
    discard()
    end_sender(spool)


def end_sender(spool: Spool) -> None:
    """Let the sender of this process end, with nothing left to send: else it warns amid other tests."""
    running = sender._OF_PROCESS.peek()
    if running is not None:
        for name in spool.names():
            spool.remove(name)
        running.flush(_ENDS_S)
    sender._OF_PROCESS.reset()


def spooled(spool: Spool) -> list[Entry]:
    """Return the registrations that wait, oldest first."""
    entries = [spool.read(name) for name in spool.names()]
    return [entry for entry in entries if entry is not None]

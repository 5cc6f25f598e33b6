"""`ckptguard adopt --watch` as a real process, and the lines of JSON that it writes."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class AdoptProcess:
    """A watcher that runs; its lines are read as they come."""

    process: "subprocess.Popen[str]"
    errors: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    def of(self, kind: str, **members: object) -> list[dict[str, Any]]:
        """Return what was told of one kind, with these members."""
        return [
            line
            for line in list(self.lines)
            if line["kind"] == kind and all(line.get(name) == value for name, value in members.items())
        ]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def said(self) -> str:
        """Return everything, for a failure."""
        return f"{self.lines}\n{self.errors.read_text()}"


@contextmanager
def adopting(*arguments: object, environment: Mapping[str, str], folder: Path) -> Iterator[AdoptProcess]:
    """Run `adopt ... --watch --json` until the block ends."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CKPTGUARD_", "AWS_"))}
    errors = folder / "adopt.err"
    command = [sys.executable, "-m", "ckptguard", "adopt", *map(str, arguments), "--watch", "--json"]
    with errors.open("w") as stream:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, env=kept | dict(environment)
        )
    running = AdoptProcess(process=process, errors=errors)
    reader = threading.Thread(target=_read, args=(running,), name="adopt-lines")
    reader.start()
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        reader.join(30)
        assert process.stdout is not None
        process.stdout.close()


def _read(running: AdoptProcess) -> None:
    assert running.process.stdout is not None
    for line in running.process.stdout:
        running.lines.append(json.loads(line))

"""A command at a terminal, as a person starts it, and what is to be seen there."""

import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

DEADLINE_S = 60.0


class PseudoTerminal:
    """One command and its terminal; standard input is the terminal, too, unless another is given."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._seen = bytearray()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        """All that was written, with what moves the cursor."""
        return self._seen.decode(errors="backslashreplace").replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """What is to be read: a line that was drawn anew counts as it was in the end."""
        drawn = (line.rpartition("\r\x1b[K")[2] for line in self.raw.split("\n"))
        return [line for line in drawn if line]

    def wait_for(self, is_there: Callable[[], bool], *, what: str) -> None:
        """Return when it is there.

        Raises:
            AssertionError: It was not there in time, or the command ended without it.
        """
        ends_s = time.monotonic() + DEADLINE_S
        while not is_there():
            assert self.process.poll() is None or is_there(), f"it ended without {what}:\n{self.raw}"
            assert time.monotonic() < ends_s, f"waited in vain for {what}:\n{self.raw}"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal; return the exit code once everything was read."""
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return code

    def close(self) -> None:
        """Kill what still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(1.0)
        os.close(self._master)

    def _read(self) -> None:
        with suppress(OSError):  # EIO: nobody has the other end any more
            while chunk := os.read(self._master, 1 << 16):
                self._seen += chunk


@contextmanager
def at_a_terminal(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[PseudoTerminal]:
    """Yield a command that runs at a terminal of its own."""
    terminal = PseudoTerminal(command, environment)
    try:
        yield terminal
    finally:
        terminal.close()

"""The canary child as a process: started, cold or warm, and given up."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Self

from ckptguard.errors import CanaryError

WARM = "warm"
"""Third argument of the child: import torch before the job comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryProcess:
    """A child that waits for its one job.

    Args:
        child: Its standard input takes the job, its standard output is what torch prints.
        events: Where it tells what it does.
    """

    child: subprocess.Popen[bytes]
    events: BinaryIO

    @classmethod
    def start(cls, *, is_warm: bool = False) -> Self:
        """Start a child in a process group of its own.

        The child dies with the thread that calls this, so a warm one is started by a thread
        that stays.

        Args:
            is_warm: It imports torch at once; else it first looks at its job.

        Raises:
            CanaryError: It could not be started.
        """
        read_end, write_end = os.pipe()
        how = [WARM] if is_warm else []
        try:
            child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "ckptguard.canary.child", str(write_end), str(os.getpid()), *how],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end,),
                start_new_session=True,
                env=child_environment(),
            )
        except OSError as error:
            os.close(read_end)
            msg = f"the canary child could not be started: {error}"
            raise CanaryError(msg) from error
        finally:
            os.close(write_end)
        return cls(child=child, events=os.fdopen(read_end, "rb"))

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.child.poll() is None

    def kill(self) -> None:
        """Kill its whole process group, and wait for the child itself."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def discard(self) -> None:
        """Kill a child that got no job; idempotent."""
        self.kill()
        for stream in (self.child.stdin, self.child.stdout, self.events):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr] # both are pipes


def child_environment() -> dict[str, str]:
    """Our environment without anything of the service: the child holds no token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    return {**kept, "TORCHELASTIC_USE_AGENT_STORE": "False", "PYTHONUNBUFFERED": "1"}

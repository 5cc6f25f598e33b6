"""The one worker of an embedded service: a child process that is started again when it dies."""

import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ckptguard.clock import Clock
from ckptguard.model.service import EVERY_STORE

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_LONG_LIFE_S: Final = 60.0
_DRAIN_S: Final = 8.0
_END_S: Final = 3.0
_HIDDEN: Final = re.compile(r"CKPTGUARD_(?:DATABASE_URL(?:_FILE)?|TOKEN_FILE|DATA_DIR)|PG[A-Z]+")
"""Where the database is and its password, for libpq too, and where the operator's token lies."""
_LOG: Final = structlog.get_logger("ckptguard.serve")


WORKER_COMMAND: Final = (
    *(sys.executable, "-m", "ckptguard_workers", "--store", EVERY_STORE),
    *("--log", "json", "--until-stdin-ends"),
)
"""It takes every store where the service has it, now and later: it is one machine, and the allow-list of the
service decides for both. A service that is killed takes it along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnvironment:
    """What the worker is told; by its environment, because a command line can be read by all.

    Args:
        url: Of the service, from this machine.
        token: With scope `work`.
        is_http_allowed: The URL is this machine's own though it is no loopback address.
    """

    url: str
    token: str
    is_http_allowed: bool

    def over(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return an environment for the worker; it never has the database's password."""
        told = {"CKPTGUARD_URL": self.url, "CKPTGUARD_TOKEN": self.token}
        if self.is_http_allowed:
            told["CKPTGUARD_ALLOW_HTTP"] = "1"
        return {name: value for name, value in base.items() if not _HIDDEN.fullmatch(name)} | told


class WorkerKeeper:
    """Starts the worker, starts it again with growing pauses, and drains it at the end.

    Args:
        command: What to start.
        environment: All of the worker's.
        clock: Tells long lives from short ones.
    """

    def __init__(self, command: tuple[str, ...], environment: Mapping[str, str], *, clock: Clock) -> None:
        self._environment = dict(environment)
        self._clock = clock
        self._command = command
        self._is_stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="worker-keeper", daemon=True)

    @property
    def pid(self) -> int | None:
        """Of the worker that lives now, or lived last."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the worker, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Let the worker give its lease back, then end it; at most eleven seconds."""
        with self._lock:
            self._is_stopping.set()
            process = self._process
        if process is not None:
            _end(process)
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while (process := self._started()) is not None:
            started_s = self._clock.monotonic_s()
            code = process.wait()
            _let_go(process)
            if self._is_stopping.is_set():
                return
            if self._clock.monotonic_s() - started_s > _LONG_LIFE_S:
                pause_s = _FIRST_PAUSE_S
            _LOG.warning("the worker died", exit_code=code, pid=process.pid, starts_again_in_s=pause_s)
            self._is_stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_stopping.is_set():
                return None
            # A session of its own: Ctrl-C reaches the service alone, which then lets the worker drain.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,  # nothing is written: it ends when this process does
                stdout=sys.stderr.fileno(),
                start_new_session=True,
            )
            return self._process


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    for ask, patience_s in ((process.terminate, _DRAIN_S), (process.terminate, _END_S), (process.kill, None)):
        ask()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return

"""Start a canary child, listen to it, and turn whatever becomes of it into an outcome."""

import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

from ckptguard.canary.events import EventLines, parse_event
from ckptguard.canary.job import CanaryJob, write_job
from ckptguard.canary.outcome import CanaryOutcome, Ending
from ckptguard.clock import Clock
from ckptguard.errors import CanaryError
from ckptguard.scan.progress import Progress, ProgressListener

if TYPE_CHECKING:
    from ckptguard.scan.result import FileScan

TAIL_BYTES: Final = 4096
_POLL_S: Final = 1.0
_GRACE_S: Final = 10.0


def run_canary(
    job: CanaryJob,
    *,
    deadline_s: float,
    clock: Clock,
    progress: ProgressListener | None = None,
    total: Progress | None = None,
) -> CanaryOutcome:
    """Run one job in a child process of its own group, and outlive whatever happens to it.

    Args:
        job: What to load.
        deadline_s: Seconds after which the child's whole process group is killed.
        clock: Measures the deadline.
        progress: Told what the child reports.
        total: Bytes and files to expect; completes the child's reports.

    Raises:
        CanaryError: The child could not be started.
    """
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "ckptguard.canary.child", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            start_new_session=True,
            env=_child_environment(),
        )
    except OSError as error:
        os.close(read_end)
        msg = f"the canary child could not be started: {error}"
        raise CanaryError(msg) from error
    finally:
        os.close(write_end)
    with child:
        return _Listener(child, read_end, progress, total).run(job, clock.monotonic_s() + deadline_s, clock)


def _child_environment() -> dict[str, str]:
    """Our environment without anything of the service: the child holds no token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    return {**kept, "TORCHELASTIC_USE_AGENT_STORE": "False", "PYTHONUNBUFFERED": "1"}


class _Listener:
    """Takes what one child says until it ends or its time is up."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        events_fd: int,
        progress: ProgressListener | None,
        total: Progress | None,
    ) -> None:
        self._child = child
        self._events = os.fdopen(events_fd, "rb")
        self._progress = progress
        self._total = total or Progress(phase="loading")
        self._tail = bytearray()
        self._scans: dict[str, FileScan] = {}
        self._ready: Mapping[str, Any] = {}
        self._last: Mapping[str, Any] = {}
        self._garbled = ""

    def run(self, job: CanaryJob, deadline: float, clock: Clock) -> CanaryOutcome:
        drain = threading.Thread(target=self._drain, args=(self._child.stdout,), daemon=True)
        drain.start()
        send = threading.Thread(target=self._send, args=(job,), daemon=True)
        send.start()
        is_late, has_ended = False, False
        try:
            for line in self._lines(deadline, clock):
                self._take(parse_event(line))
            has_ended = True
        except TimeoutError:
            is_late = True
        except CanaryError as error:
            self._garbled = str(error)
        finally:
            self._end_group(has_ended=has_ended)
            drain.join(_GRACE_S)
            send.join(_GRACE_S)
            with suppress(BrokenPipeError):  # what the child never took
                self._child.stdin.close()  # type: ignore[union-attr]
            self._events.close()
        return self._outcome(is_late=is_late)

    def _send(self, job: CanaryJob) -> None:
        with suppress(BrokenPipeError):
            write_job(job, self._child.stdin)  # type: ignore[arg-type]

    def _drain(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), TAIL_BYTES):
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]

    def _lines(self, deadline: float, clock: Clock) -> Iterator[bytes]:
        lines = EventLines()
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                left = deadline - clock.monotonic_s()
                if left <= 0:
                    raise TimeoutError
                if not selector.select(min(left, _POLL_S)):
                    continue
                chunk = os.read(self._events.fileno(), 1 << 20)
                if not chunk:
                    return
                yield from lines.feed(chunk)

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self._ready = event
            case "file":
                scan = event["scan"]
                self._scans[scan.path] = scan
            case "progress":
                self._report(event)
            case _:
                self._last = event

    def _report(self, event: Mapping[str, Any]) -> None:
        if self._progress is None:
            return
        self._progress(
            Progress(
                phase=self._total.phase,
                bytes_done=event["bytes_done"],
                bytes_total=self._total.bytes_total,
                files_done=event["files_done"],
                files_total=self._total.files_total,
                file=event["file"],
                findings=event["findings"],
            )
        )

    def _end_group(self, *, has_ended: bool) -> None:
        """Kill the child's whole group: at once if it has not ended by itself, else what it left behind."""
        if has_ended:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_GRACE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _outcome(self, *, is_late: bool) -> CanaryOutcome:
        ending, reason = self._ending(is_late=is_late)
        return CanaryOutcome(
            ending=ending,
            reason=reason,
            is_about_bytes=self._last.get("is_about_bytes", False),
            scans=self._scans,
            versions={name: self._ready[name] for name in ("torch", "python") if name in self._ready},
            device=self._ready.get("device"),
            import_seconds=self._ready.get("import_seconds", 0.0),
            load_seconds=self._last.get("load_seconds", 0.0),
            output_tail=self._tail.decode(errors="replace"),
            loaded=self._last.get("loaded", 0),
        )

    def _ending(self, *, is_late: bool) -> tuple[Ending, str]:
        if is_late:
            return Ending.DEADLINE, "killed: its time was up"
        if self._garbled:
            return Ending.CRASHED, f"killed: {self._garbled}"
        if self._last.get("event") == "done":
            return Ending.DONE, ""
        if self._last.get("event") == "failed":
            return Ending.LOAD_FAILED, self._last["message"]
        code = self._child.returncode
        if code < 0:
            return Ending.CRASHED, f"ended by signal {-code} ({signal.Signals(-code).name})"
        return Ending.CRASHED, f"ended with exit code {code}"

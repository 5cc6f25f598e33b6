"""Start a canary child, listen to it, and turn whatever becomes of it into an outcome."""

import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO, Final, Protocol

from ckptguard.canary.events import EventLines, parse_event
from ckptguard.canary.job import CanaryJob, Group, job_bytes, write_group
from ckptguard.canary.outcome import CanaryOutcome, Ending
from ckptguard.canary.process import CanaryProcess
from ckptguard.clock import Clock
from ckptguard.errors import CanaryError
from ckptguard.scan.progress import Progress, ProgressListener
from ckptguard.scan.result import FileListener, FileResult, FileScan

TAIL_BYTES: Final = 4096
_POLL_S: Final = 1.0
_GRACE_S: Final = 10.0


class CanaryRunner(Protocol):
    """Whoever runs one job in a child and tells how it ended; `run_canary` is the plainest one."""

    def __call__(
        self,
        job: CanaryJob,
        *,
        deadline_s: float,
        clock: Clock,
        progress: ProgressListener | None = None,
        total: Progress | None = None,
        on_file: FileListener | None = None,
    ) -> CanaryOutcome:
        """As `run_canary`."""
        ...


def run_canary(
    job: CanaryJob,
    *,
    deadline_s: float,
    clock: Clock,
    progress: ProgressListener | None = None,
    total: Progress | None = None,
    on_file: FileListener | None = None,
) -> CanaryOutcome:
    """Run one job in a child process of its own group, and outlive whatever happens to it.

    Args:
        job: What to load.
        deadline_s: Seconds after which the child's whole process group is killed.
        clock: Measures the deadline.
        progress: Told what the child reports.
        total: Bytes and files to expect; completes the child's reports.
        on_file: Told of each file as it is done.

    Raises:
        CanaryError: The child could not be started.
    """
    watch = CanaryWatch(
        deadline_s=deadline_s,
        clock=clock,
        progress=progress,
        total=total or Progress(phase="loading"),
        on_file=on_file,
        versions=job.versions,
    )
    return run_in(CanaryProcess.start(), job_bytes(job), group=job.group, watch=watch)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryWatch:
    """How one run of a child is watched.

    Args:
        deadline_s: Seconds after which its whole process group is killed.
        clock: Measures the deadline.
        progress: Told what the child reports.
        total: Bytes and files to expect; completes the child's reports.
        on_file: Told of each file as it is done.
        versions: As `CanaryJob.versions`.
        is_wanted: Asked every second at least; once it says no, the child is killed.
    """

    deadline_s: float
    clock: Clock
    progress: ProgressListener | None = None
    total: Progress = field(default_factory=lambda: Progress(phase="loading"))
    on_file: FileListener | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    is_wanted: Callable[[], bool] = lambda: True


def run_in(process: CanaryProcess, job: bytes, *, group: Group | None, watch: CanaryWatch) -> CanaryOutcome:
    """Run one job in a child that waits for it; the child and its whole process group end here.

    Args:
        process: Started before.
        job: As `job_bytes` makes it; not looked at.
        group: Which rank of which group the child is.
        watch: Who is told, and until when.
    """
    with process.child:
        return _Listener(process, watch).run(job, group)


class _UnwantedError(Exception):
    """Nobody waits for the result of this child any more."""


_WHY_KILLED: Final = {
    Ending.DEADLINE: "killed: its time was up",
    Ending.STOPPED: "killed: nobody waits for it any more",
}


class _Listener:
    """Takes what one child says until it ends or its time is up."""

    def __init__(self, process: CanaryProcess, watch: CanaryWatch) -> None:
        self._process = process
        self._child = process.child
        self._events = process.events
        self._watch = watch
        self._tail = bytearray()
        self._scans: dict[str, FileScan] = {}
        self._ready: Mapping[str, Any] = {}
        self._last: Mapping[str, Any] = {}
        self._garbled = ""

    def run(self, job: bytes, group: Group | None) -> CanaryOutcome:
        drain = threading.Thread(target=self._drain, args=(self._child.stdout,), daemon=True)
        drain.start()
        send = threading.Thread(target=self._send, args=(job, group), daemon=True)
        send.start()
        killed: Ending | None = None
        has_ended = False
        try:
            for line in self._lines():
                self._take(parse_event(line))
            has_ended = True
        except TimeoutError:
            killed = Ending.DEADLINE
        except _UnwantedError:
            killed = Ending.STOPPED
        except CanaryError as error:
            self._garbled = str(error)
        finally:
            self._end_group(has_ended=has_ended)
            drain.join(_GRACE_S)
            send.join(_GRACE_S)
            with suppress(BrokenPipeError):  # what the child never took
                self._child.stdin.close()  # type: ignore[union-attr]
            self._events.close()
        return self._outcome(killed)

    def _send(self, job: bytes, group: Group | None) -> None:
        stdin: BinaryIO = self._child.stdin  # type: ignore[assignment] # a pipe
        with suppress(BrokenPipeError):
            write_group(group, stdin)
            stdin.write(job)
            stdin.flush()

    def _drain(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), TAIL_BYTES):
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]

    def _lines(self) -> Iterator[bytes]:
        lines, clock = EventLines(), self._watch.clock
        deadline = clock.monotonic_s() + self._watch.deadline_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                left = deadline - clock.monotonic_s()
                if left <= 0:
                    raise TimeoutError
                if not self._watch.is_wanted():
                    raise _UnwantedError
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
                self._take_file(event["scan"])
            case "progress":
                self._report(event)
            case "warm" | "pong":
                pass
            case _:
                self._last = event

    def _take_file(self, scan: FileScan) -> None:
        self._scans[scan.path] = scan
        if self._watch.on_file is not None:
            versions = {**self._watch.versions, **self._versions()}
            self._watch.on_file(FileResult(scan=scan, device=self._ready.get("device"), versions=versions))

    def _versions(self) -> dict[str, str]:
        return {name: self._ready[name] for name in ("torch", "python") if name in self._ready}

    def _report(self, event: Mapping[str, Any]) -> None:
        if self._watch.progress is None:
            return
        total = self._watch.total
        self._watch.progress(
            Progress(
                phase=total.phase,
                bytes_done=event["bytes_done"],
                bytes_total=total.bytes_total,
                files_done=event["files_done"],
                files_total=total.files_total,
                file=event["file"],
                findings=event["findings"],
            )
        )

    def _end_group(self, *, has_ended: bool) -> None:
        """Kill the child's whole group: at once if it has not ended by itself, else what it left behind."""
        if has_ended:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_GRACE_S)
        self._process.kill()

    def _outcome(self, killed: Ending | None) -> CanaryOutcome:
        ending, reason = self._ending(killed)
        return CanaryOutcome(
            ending=ending,
            reason=reason,
            is_about_bytes=self._last.get("is_about_bytes", False),
            scans=self._scans,
            versions=self._versions(),
            device=self._ready.get("device"),
            import_seconds=self._ready.get("import_seconds", 0.0),
            load_seconds=self._last.get("load_seconds", 0.0),
            output_tail=self._tail.decode(errors="replace"),
            loaded=self._last.get("loaded", 0),
        )

    def _ending(self, killed: Ending | None) -> tuple[Ending, str]:
        if killed is not None:
            return killed, _WHY_KILLED[killed]
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

"""Validate in a child process, so that whatever a checkpoint does to it is an outcome.

The supervisor that calls this holds a service token and never touches checkpoint bytes; the
validation child parses, the canary child loads (ADR 0011).
"""

import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Final, Protocol

from ckptguard.canary.outcome import CanaryOutcome, Ending, outcome_to_json
from ckptguard.canary.process import child_environment
from ckptguard.canary.spawn import CanaryWatch
from ckptguard.clock import Clock
from ckptguard.errors import CanaryError, FormatError
from ckptguard.model.report import Report
from ckptguard.model.report_json import report_from_json
from ckptguard.operations.frames import Frame, FrameBuffer, write_frame
from ckptguard.operations.validation_job import ValidationJob, job_to_frame
from ckptguard.scan.progress import Progress, ProgressListener
from ckptguard.scan.result import FileListener, file_result_from_json

TAIL_BYTES: Final = 4096
_POLL_S: Final = 0.5
_GRACE_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 20


class CanaryServer(Protocol):
    """Runs canaries for a validation child."""

    def __call__(self, job: bytes, *, mode: str, watch: CanaryWatch) -> CanaryOutcome:
        """Run one job.

        Args:
            job: As `job_bytes` made it; not looked at.
            mode: As `CanaryJob.mode`.
            watch: Who is told, and until when.

        Raises:
            CanaryError: No child could be started.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a validation is watched.

    Args:
        deadline_s: Seconds for all of it.
        clock: Measures the deadline.
        progress: Told of bytes and files; from one thread.
        on_file: Told of each file that was read to its end; from the same thread.
        is_wanted: Asked every second at least; once it says no, both children are killed.
    """

    deadline_s: float
    clock: Clock
    progress: ProgressListener
    on_file: FileListener
    is_wanted: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedOutcome:
    """What became of a validation.

    Args:
        report: What was found; None where the child ended without one.
        reason: Why there is none, for a person.
        is_unwanted: There is none because `is_wanted` said no.
    """

    report: Report | None = None
    reason: str = ""
    is_unwanted: bool = False


def validate_isolated(job: ValidationJob, *, canary: CanaryServer, watch: Watch) -> IsolatedOutcome:
    """Run one validation in a child process of its own group, and outlive whatever happens to it.

    The child dies with the thread that calls this.

    Args:
        job: What to validate.
        canary: Runs the load, where the child asks for it.
        watch: Who is told, and until when.
    """
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "ckptguard.operations.validation_child", str(write_end), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            start_new_session=True,
            env={**child_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
        )
    except OSError as error:
        os.close(read_end)
        return IsolatedOutcome(reason=f"the validation child could not be started: {error}")
    finally:
        os.close(write_end)
    with child:
        return _Conversation(child, read_end, canary, watch).run(job)


class _EndedError(Exception):
    """The conversation ends here, without a report."""


class _Conversation:
    """Everything that is said between a supervisor and one validation child."""

    def __init__(
        self, child: subprocess.Popen[bytes], events_fd: int, canary: CanaryServer, watch: Watch
    ) -> None:
        self._child = child
        self._events = os.fdopen(events_fd, "rb")
        self._canary = canary
        self._watch = watch
        self._deadline = watch.clock.monotonic_s() + watch.deadline_s
        self._tail = bytearray()
        self._report: Report | None = None
        self._failure = ""
        self._senders: list[threading.Thread] = []

    def run(self, job: ValidationJob) -> IsolatedOutcome:
        drain = threading.Thread(target=self._drain, args=(self._child.stdout,), daemon=True)
        drain.start()
        self._send(job_to_frame(job))
        ended = ""
        try:
            for frame in self._frames():
                self._take(frame)
        except _EndedError as error:
            ended = str(error)
        except CanaryError as error:
            ended = f"the validation child wrote what is no message: {error}"
        finally:
            self._end_group(has_ended=not ended)
            for thread in (drain, *self._senders):
                thread.join(_GRACE_S)
            with suppress(BrokenPipeError):  # what the child never took
                self._child.stdin.close()  # type: ignore[union-attr] # a pipe
            self._events.close()
        return self._outcome(ended)

    def _drain(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), TAIL_BYTES):
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]

    def _send(self, frame: Frame) -> None:
        """Send from a thread: a child that does not listen must not hold up its supervisor."""
        stdin: BinaryIO = self._child.stdin  # type: ignore[assignment] # a pipe

        def send() -> None:
            with suppress(BrokenPipeError):
                write_frame(frame, stdin)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        self._senders.append(thread)

    def _frames(self) -> Iterator[Frame]:
        buffer = FrameBuffer()
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while True:
                self._require_wanted()
                if not selector.select(_POLL_S):
                    continue
                chunk = os.read(self._events.fileno(), _CHUNK_BYTES)
                if not chunk:
                    return
                yield from buffer.feed(chunk)

    def _require_wanted(self) -> None:
        if not self._watch.is_wanted():
            raise _EndedError(_UNWANTED)
        if self._watch.clock.monotonic_s() >= self._deadline:
            msg = "killed: its time was up"
            raise _EndedError(msg)

    def _take(self, frame: Frame) -> None:
        try:
            self._take_event(frame)
        except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
            msg = f"{type(error).__name__}: {error}"
            raise CanaryError(msg) from error

    def _take_event(self, frame: Frame) -> None:
        header = frame.header
        match header["event"]:
            case "progress":
                self._watch.progress(Progress(**header["progress"]))
            case "file":
                self._watch.on_file(file_result_from_json(header["result"]))
            case "canary":
                self._send(Frame(header=outcome_to_json(self._run_canary(header, frame.body))))
            case "report":
                self._report = report_from_json(header["report"])
            case "failed":
                self._failure = f"{header['code']}: {header['message']}"
            case other:
                msg = f"unknown event {other!r}"
                raise ValueError(msg)

    def _run_canary(self, header: Mapping[str, Any], job: bytes) -> CanaryOutcome:
        left_s = self._deadline - self._watch.clock.monotonic_s()
        watch = CanaryWatch(
            deadline_s=min(float(header["deadline_s"]), left_s),
            clock=self._watch.clock,
            progress=self._watch.progress,
            total=Progress(**header["total"]),
            on_file=self._watch.on_file,
            versions=header["versions"],
            is_wanted=lambda: self._watch.is_wanted() and self._child.poll() is None,
        )
        try:
            return self._canary(job, mode=header["mode"], watch=watch)
        except CanaryError as error:
            return CanaryOutcome(ending=Ending.CRASHED, reason=str(error))

    def _end_group(self, *, has_ended: bool) -> None:
        if has_ended:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_GRACE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _outcome(self, ended: str) -> IsolatedOutcome:
        if ended == _UNWANTED:
            return IsolatedOutcome(reason=ended, is_unwanted=True)
        if self._report is not None and not ended:
            return IsolatedOutcome(report=self._report)
        reason = ended or self._failure or self._death()
        tail = self._tail.decode(errors="replace").strip()
        return IsolatedOutcome(reason=f"{reason}\n{tail}" if tail else reason)

    def _death(self) -> str:
        code = self._child.returncode
        if code < 0:
            return f"the validation child ended by signal {-code} ({signal.Signals(-code).name})"
        return f"the validation child ended with exit code {code} and no report"


_UNWANTED: Final = "killed: nobody waits for it any more"

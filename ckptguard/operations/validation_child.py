"""The validation child: lists, parses and judges. `python -m ckptguard.operations.validation_child FD PID`.

It takes one job from stdin, tells what it does by frames on the given descriptor, and ends. It
imports no torch and holds no service token; the load is done by a canary child, for which it asks
its supervisor. When stdin closes, or the process PID is gone, it ends too.
"""

import os
import queue
import resource
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, BinaryIO, Final

from ckptguard.canary.job import CanaryJob, job_bytes
from ckptguard.canary.outcome import CanaryOutcome, outcome_from_json
from ckptguard.canary.parent import die_with_parent
from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import CanaryError, CkptGuardError, ConfigError, PathEscapeError, StoreError
from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import Report, report_to_json
from ckptguard.model.verdict import Provenance
from ckptguard.operations.frames import Frame, read_frame, write_frame
from ckptguard.operations.location import place_in_store
from ckptguard.operations.place import Place
from ckptguard.operations.reading import Attempt
from ckptguard.operations.refusal import refusal
from ckptguard.operations.validate import validate_in
from ckptguard.operations.validation_job import ValidationJob, job_from_frame
from ckptguard.scan.faults import store_finding
from ckptguard.scan.progress import Progress, ProgressListener
from ckptguard.scan.result import FileListener, FileResult, file_result_from_json, file_result_to_json

EXIT_FAILED: Final = 3
MAX_OPEN_FILES: Final = 4096


class Supervisor:
    """The other end of the pipes: told of everything, asked for canaries.

    Args:
        told: Where messages go.
        heard: Where its answers come from; once it closes, this process ends.
    """

    def __init__(self, told: BinaryIO, heard: BinaryIO) -> None:
        self._told = told
        self._heard = heard
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[Frame] = queue.SimpleQueue()

    def tell(self, event: str, *, body: bytes = b"", **values: object) -> None:
        """Send one message, from any thread."""
        with self._lock:
            write_frame(Frame(header={"event": event, **values}, body=body), self._told)

    def listen(self) -> None:
        """Take answers until the supervisor is gone, and end this process then."""
        while (answer := read_frame(self._heard)) is not None:
            self._answers.put(answer)
        os._exit(1)

    def run_canary(
        self,
        job: CanaryJob,
        *,
        deadline_s: float,
        clock: Clock,
        progress: ProgressListener | None = None,
        total: Progress | None = None,
        on_file: FileListener | None = None,
    ) -> CanaryOutcome:
        """Have the supervisor run a canary (a `CanaryRunner`).

        It tells the service of progress and files itself, while they come.
        """
        del clock, progress, on_file
        self.tell(
            "canary",
            body=job_bytes(job),
            deadline_s=deadline_s,
            mode=job.mode,
            total=asdict(total or Progress(phase="loading")),
            versions=dict(job.versions),
        )
        return outcome_from_json(self._answers.get().header)


def main(arguments: list[str]) -> int:
    """Run one job. Exit 0: a report was told; 3: there is none, and a message says why."""
    events_fd, parent_pid = arguments
    die_with_parent(int(parent_pid))
    _limit_resources()
    stdin = os.fdopen(os.dup(0), "rb")  # not sys.stdin: its lock, held by a daemon thread, stops no exit
    supervisor = Supervisor(os.fdopen(int(events_fd), "wb"), stdin)
    try:
        job = _take_job(stdin)
        threading.Thread(target=supervisor.listen, daemon=True).start()
        report = _validate(job, supervisor)
    except CkptGuardError as error:
        supervisor.tell("failed", code=error.code, message=str(error))
        return EXIT_FAILED
    supervisor.tell("report", report=report_to_json(report))
    return 0


def _limit_resources() -> None:
    """No core dump of checkpoint bytes, nothing written to any file, a bound on open files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (bound, bound))


def _take_job(stream: BinaryIO) -> ValidationJob:
    frame = read_frame(stream)
    if frame is None:
        msg = "no job came"
        raise CanaryError(msg)
    job = job_from_frame(frame)
    if job.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (job.memory_bytes, job.memory_bytes))
    return job


def _validate(job: ValidationJob, supervisor: Supervisor) -> Report:
    clock = SystemClock()
    try:
        place = place_in_store(job.url, job.path, dict(job.options))
    except (PathEscapeError, StoreError) as error:
        finding = store_finding(error, file=job.path, check=CheckName.EXISTENCE)
        return refusal(finding, target=job.path, at=clock.now())
    try:
        return _judge(place, job, supervisor, clock)
    except ConfigError as error:  # one file of a set, for one: nothing that another worker could do better
        finding = Finding(
            code=FindingCode.UNKNOWN_LAYOUT,
            check=CheckName.EXISTENCE,
            severity=Severity.UNKNOWN,
            message=str(error),
        )
        return refusal(finding, target=place.target, at=clock.now())


def _judge(place: Place, job: ValidationJob, supervisor: Supervisor, clock: Clock) -> Report:
    report = validate_in(
        place,
        policy=job.policy,
        manifests={folder: parse_manifest(text) for folder, text in job.manifests.items()},
        progress=lambda progress: supervisor.tell("progress", progress=asdict(progress)),
        clock=clock,
        attempt=Attempt(
            canary=supervisor.run_canary,
            known=_known(job.known),
            on_file=lambda result: supervisor.tell("file", result=file_result_to_json(result)),
            is_tensor_list_wanted=True,
        ),
    )
    if report.provenance is Provenance.PROVEN and not job.is_from_writer:
        # A manifest that lies in storage may have been put there by whoever changed the shards.
        return replace(report, provenance=Provenance.UNCHANGED)
    return report


def _known(values: object) -> Mapping[str, FileResult]:
    """Take what earlier attempts told, as far as it has its form; the rest is read again."""
    known: dict[str, FileResult] = {}
    for value in values if isinstance(values, list) else ():
        result = _file_result(value)
        if result is not None:
            known[result.scan.path] = result
    return known


def _file_result(value: Mapping[str, Any]) -> FileResult | None:
    try:
        return file_result_from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

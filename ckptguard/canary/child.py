"""The canary child: the only process that loads. `python -m ckptguard.canary.child EVENTS_FD PARENT_PID`.

It takes one job from stdin, writes events (JSON, one a line) to the given descriptor, and
ends. With a third argument, `warm`, it imports torch before it waits for the job. It holds
no service token. When stdin closes, its parent is gone, and it goes too.
"""

import json
import os
import platform
import resource
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ckptguard.canary.job import CanaryJob, Group, as_seen_by, read_group, read_job
from ckptguard.canary.parent import die_with_parent
from ckptguard.canary.process import WARM
from ckptguard.errors import CkptGuardError
from ckptguard.formats.checkpoint import distinct_shards
from ckptguard.formats.reopen import open_checkpoint
from ckptguard.scan.files import ScanSetting
from ckptguard.scan.progress import Progress, ProgressMeter
from ckptguard.scan.result import scan_to_json
from ckptguard.storage.caching import CachingStore
from ckptguard.storage.open_url import open_location

if TYPE_CHECKING:
    import torch

EXIT_LOAD_FAILED: Final = 3
_MAX_MESSAGE_CHARACTERS: Final = 2000
_MEMORY_SLACK_BYTES: Final = 6 << 30
"""What torch and its threads take beside our own buffers, generously."""


class EventWriter:
    """Writes one JSON object a line; from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, event: str, **values: Any) -> None:  # noqa: ANN401 - any JSON value
        """Write one event at once."""
        line = json.dumps({"event": event, **values}).encode() + b"\n"
        with self._lock:
            self._stream.write(line)
            self._stream.flush()


def main(arguments: list[str]) -> int:
    """Run one job. Exit 0: all was read; 3: the load failed and an event says why."""
    events_fd, parent_pid, *how = arguments
    die_with_parent(int(parent_pid))
    events = EventWriter(os.fdopen(int(events_fd), "wb"))
    if how == [WARM]:
        _import_torch()
        events.write("warm")
    group = read_group(sys.stdin.buffer, on_ping=lambda: events.write("pong"))
    job = replace(read_job(sys.stdin.buffer), group=group)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dump of checkpoint bytes
    if job.group is None:
        _limit_memory(job)
    _get_ready(job, events)
    try:
        entries, load_seconds = _run(job, events)
    except CkptGuardError as error:
        events.write("failed", message=str(error), is_about_bytes=False)
        return EXIT_LOAD_FAILED
    except BaseException as error:  # noqa: BLE001 - process edge; CheckpointException is a BaseException
        events.write("failed", message=_first_line(error), is_about_bytes=not _is_environment(error))
        return EXIT_LOAD_FAILED
    events.write("done", loaded=entries, load_seconds=load_seconds)
    return 0


def _import_torch() -> float:
    """Import all that a load needs; return the seconds it took."""
    started = time.perf_counter()
    import torch  # noqa: PLC0415 - only here, and timed

    from ckptguard.canary import dcp_load, group_job, stock_load  # noqa: F401, PLC0415 - they import torch

    torch.set_num_threads(1)  # files are read side by side; each thread reduces its own pieces
    return time.perf_counter() - started


def _get_ready(job: CanaryJob, events: EventWriter) -> None:
    import_seconds = _import_torch()
    import torch  # noqa: PLC0415 - only here

    events.write(
        "ready",
        torch=torch.__version__,
        python=platform.python_version(),
        device=_device_name(torch.device(job.device)),
        import_seconds=import_seconds,
    )


def _run(job: CanaryJob, events: EventWriter) -> tuple[int, float]:
    """Load; return how many entries stock returned, in stock mode, and the seconds of the load alone."""
    import torch  # noqa: PLC0415 - only here

    from ckptguard.canary import dcp_load, group_job, stock_load  # noqa: PLC0415 - they import torch

    root = Path(job.store_root) if job.store_root is not None else None
    store, _ = open_location(job.target, root=root, options=job.options)
    if job.mode == "stock":
        layouts = open_checkpoint(CachingStore(store, job.blobs), job.listing, job.limits)
        base = f"{store.url}/{job.listing.root}".rstrip("/")
        started = time.perf_counter()
        entries = stock_load.load([(f"{base}/{layout.part}".rstrip("/"), layout) for layout in layouts])
        return entries, time.perf_counter() - started
    group = job.group or Group(rank=0, world_size=1, init_method="")
    with dcp_load.process_group(job.group, device=torch.device(job.device)):
        if job.group is not None:
            job = as_seen_by(job, group_job.shared_job(job, device=torch.device(job.device)))
            _limit_memory(job)
        layouts = open_checkpoint(CachingStore(store, job.blobs), job.listing, job.limits)
        setting = ScanSetting(
            store=store,
            root=job.listing.root,
            limits=job.limits,
            jobs=job.jobs,
            is_direct=job.is_direct,
            algorithms=job.algorithms,
            meter=ProgressMeter(lambda progress: _write_progress(events, progress), phase="loading"),
        )
        listed = job.listing.files.keys() - job.done
        started = time.perf_counter()
        dcp_load.load_through_dcp(
            [shard for shard in distinct_shards(layouts) if shard.path in listed],
            setting,
            device=torch.device(job.device),
            numerics=job.numerics,
            rank=group.rank,
            world_size=group.world_size,
            on_scan=lambda scan: events.write("file", scan=scan_to_json(scan)),
        )
        return 0, time.perf_counter() - started


def _write_progress(events: EventWriter, progress: Progress) -> None:
    events.write(
        "progress",
        bytes_done=progress.bytes_done,
        files_done=progress.files_done,
        file=progress.file,
        findings=progress.findings,
    )


def _first_line(error: BaseException) -> str:
    causes = [f"{type(cause).__name__}: {cause}".splitlines()[0] for cause in _causes(error)]
    return "; ".join(causes)[:_MAX_MESSAGE_CHARACTERS]


def _is_environment(error: BaseException) -> bool:
    """Say whether memory, a device, a library or the store is at fault, not the bytes."""
    return any(
        isinstance(cause, (MemoryError, ImportError, TimeoutError, ConnectionError, PermissionError))
        or "out of memory" in str(cause)
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> list[BaseException]:
    """Return what DCP wrapped: per rank an exception and its traceback; else the error itself."""
    failures = getattr(error, "failures", None)
    return [failure[0] for failure in failures.values()] if failures else [error]


def _end_with_stdin() -> None:
    # Not sys.stdin: a daemon thread inside its lock would make the interpreter's exit fatal.
    while os.read(0, 1):
        pass
    os._exit(1)


def _limit_memory(job: CanaryJob) -> None:
    """Bound memory where the device allows it, by what the job may need."""
    if job.device == "cpu" and job.mode == "verify":
        blobs_bytes = sum(map(len, job.blobs.values()))
        bound = job.window_bytes + 20 * blobs_bytes + 2 * job.limits.max_object_bytes + _MEMORY_SLACK_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def _device_name(device: "torch.device") -> str:
    import torch  # noqa: PLC0415

    return f"{device} {torch.cuda.get_device_name(device)}" if device.type == "cuda" else str(device)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(exit_code)  # all is said; taking torch down again costs a second, and may crash

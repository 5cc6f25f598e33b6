"""A process that has imported torch, and forks training jobs that save through guarded writers.

    python -m tests.kills.guarded_ranks [MODULE ...]

The modules named are imported too. Each line of its standard input is one `Job` as JSON; it answers with the
pids of the ranks. Ranks are forks because importing torch takes seconds, and a campaign kills hundreds of
them. Each tells in its trace when it is about to save (`ready`), when the save has returned (`returned`), and
each step between; in a save by processes it is the process that tells of the files.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from ckptguard.integrations.dcp import GuardedWriter
from tests.kills.file_events import watch_files
from tests.kills.object_events import watch_objects
from tests.kills.steps import BEGINS_TO_SAVE, ENDS, HAS_SAVED, Steps, Watch, tell

RUN: Final = "run-7"
WORLD: Final = 2
_MATRICES: Final = 4


class Mode(StrEnum):
    """How the job saves."""

    SYNC = "sync"
    THREAD = "async thread"
    PROCESS = "async process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Ranks that save once.

    Args:
        folder: Folder or URL of the checkpoint.
        step: Of it; decides all values, with `variant`.
        scratch: Folder of this job, new; holds `trace.RANK`.
        variant: Tells two jobs apart that save the same step.
        mode: How it saves.
        rows: Of each of four matrices of 512 columns of float32.
        stops_before: By rank, the step before which it stops itself.
        dawdles_s: Each rank waits up to this long before each step.
        options: Of the writer.
        format: Of the shards.
        with_objects: Save an object too.
        gate: File that the ranks wait for once they are ready; "": they save at once.
    """

    folder: str
    step: int
    scratch: str
    variant: int = 0
    mode: Mode = Mode.SYNC
    rows: int = 2048
    stops_before: dict[str, str] = field(default_factory=dict)
    dawdles_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    format: str = SerializationFormat.TORCH_SAVE.value
    with_objects: bool = True
    gate: str = ""

    def trace(self, rank: int) -> str:
        """Return where a rank tells what it does."""
        return f"{self.scratch}/trace.{rank}"

    def watch(self, rank: int) -> Watch:
        """Return how a rank is watched."""
        return Watch(
            folder=self.folder.removeprefix("file://"),
            trace=self.trace(rank),
            stops_before=self.stops_before.get(str(rank), ""),
            dawdles_s=self.dawdles_s,
        )


def whole_state(step: int, variant: int, rows: int) -> dict[str, torch.Tensor]:
    """Return all tensors of one step, unsharded; every element differs between steps and variants."""
    ramp = torch.arange(rows * 512, dtype=torch.float32).view(rows, 512)
    shift = 1.0 + step + 1000.0 * variant
    state = {f"layers.{number}.w": ramp * (number + 1) + shift for number in range(_MATRICES)}
    return state | {"bias": torch.arange(7.0) + shift, "optim.step": torch.tensor(shift)}


def _state_of(job: Job) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = whole_state(job.step, job.variant, job.rows)
    state: dict[str, Any] = {
        name: distribute_tensor(tensor, mesh, [Shard(0)]) if name.startswith("layers.") else tensor
        for name, tensor in whole.items()
    }
    return state | ({"progress": {"step": job.step, "variant": job.variant}} if job.with_objects else {})


def _save(state: dict[str, Any], folder: str, job: Job) -> None:
    writer = GuardedWriter(
        folder,
        run=RUN,
        step=job.step,
        serialization_format=SerializationFormat(job.format),
        **job.options,
    )
    if job.mode is Mode.SYNC:
        save(state, storage_writer=writer)
        return
    kind = AsyncCheckpointerType.THREAD if job.mode is Mode.THREAD else AsyncCheckpointerType.PROCESS
    future: Any = async_save(state, storage_writer=writer, async_checkpointer_type=kind)
    future.result()


def _run(job: Job, rank: int) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ |= {"CKPTGUARD_SPOOL": f"{job.scratch}/spool", "CKPTGUARD_DATA_DIR": f"{job.scratch}/none"}
    log = os.open(f"{job.scratch}/log.{rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    dist.init_process_group("gloo", init_method=f"file://{job.scratch}/meet", rank=rank, world_size=WORLD)
    state = _state_of(job)
    steps = Steps(job.watch(rank))
    if job.mode is Mode.PROCESS:  # its process is started by the first save, which takes seconds
        os.environ |= job.watch(rank).to_environment()
        _save({"first": torch.arange(3.0)}, f"{job.scratch}/first/step-0", job)
    else:
        _watch_writes(job.watch(rank), steps)
    dist.barrier()
    tell(job.trace(rank), "ready")
    while job.gate and not os.path.exists(job.gate):  # noqa: PTH110 - what it says
        time.sleep(0.001)
    steps.reach(BEGINS_TO_SAVE)
    _save(state, job.folder, job)
    steps.reach(HAS_SAVED)
    tell(job.trace(rank), "returned")
    steps.reach(ENDS)


def _watch_writes(what: Watch, steps: Steps) -> None:
    watch = watch_objects if what.folder.startswith("s3://") else watch_files
    watch(what.folder, steps)


def _watch_as_told() -> None:
    """Watch this process where the one that started it says so."""
    what = Watch.of_environment(os.environ)
    if what is not None:
        _watch_writes(what, Steps(what))


def _fork(job: Job, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _run(job, rank)
        status = 0
    except BaseException:  # noqa: BLE001 - the edge of a process; CheckpointException is one
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def _warm_up() -> None:
    """Save once, alone, so that no fork has to import what torch imports late."""
    with tempfile.TemporaryDirectory(prefix="ckg-warm-up-") as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        job = Job(folder=f"{folder}/step-1", step=1, scratch=folder, rows=2)
        save(_state_of(job), storage_writer=GuardedWriter(job.folder))
        dist.destroy_process_group()
    num_threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are not wanted
    assert num_threads == 1, f"{num_threads} threads, and only one would live in a fork"


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def main() -> None:
    """Fork what is asked for, until the input ends."""
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        importlib.import_module(name)
    _warm_up()
    torch.set_num_threads(1)
    gc.freeze()
    for line in sys.stdin:
        _reap()
        job = from_json(line)
        Path(job.scratch).mkdir(parents=True)
        pids = [_fork(job, rank) for rank in range(WORLD)]
        sys.stdout.write(f"{json.dumps(pids)}\n")
        sys.stdout.flush()


def to_json(job: Job) -> str:
    """Return a job as one line."""
    return json.dumps(asdict(job))


def from_json(line: str) -> Job:
    """Return the job of one line."""
    told = json.loads(line)
    return Job(**{**told, "mode": Mode(told["mode"])})


_watch_as_told()
if __name__ == "__main__":
    main()

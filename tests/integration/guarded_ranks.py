"""One rank of a training job that saves through guarded writers; run once, as several processes.

    python -m tests.integration.guarded_ranks RANK WORLD_SIZE FOLDER

Writes every checkpoint that `test_guarded_saves` looks at, and `outcome.RANK.json` beside them.
"""

import io
import itertools
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, SerializationFormat
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save
from torch.distributed.checkpoint.storage import StorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from ckptguard.integrations.dcp import GuardedWriter, counters

RUN = "run-7"
KINDS = ("fs", "url")
MODES = ("sync", "thread", "process")
THREADS = (1, 3)
FORMATS = ("torch_save", "safetensors")
MATRIX = tuple(itertools.product(KINDS, MODES, THREADS, FORMATS))


def case_name(case: tuple[str, str, int, str]) -> str:
    """Return the name of one case of the matrix."""
    kind, mode, threads, format_name = case
    return f"{kind}-{mode}-{threads}-{format_name}"


def state_of(step: int, *, with_objects: bool = True) -> dict[str, Any]:
    """Return a sharded tensor, a replicated one, a small one and an object, different at each step."""
    generator = torch.Generator().manual_seed(step)
    whole = torch.randn(512, 640, generator=generator)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state: dict[str, Any] = {
        "model.w": distribute_tensor(whole, mesh, [Shard(0)]),
        "model.bias": torch.randn(7, generator=generator),
        "optim.exp_avg": torch.randn(3, 5, generator=generator),
    }
    return state | ({"progress": {"step": step, "names": ["a", "b"]}} if with_objects else {})


def _save(state: dict[str, Any], writer: StorageWriter, mode: str) -> None:
    if mode == "sync":
        save(state, storage_writer=writer)
        return
    kind = AsyncCheckpointerType.THREAD if mode == "thread" else AsyncCheckpointerType.PROCESS
    future: Any = async_save(state, storage_writer=writer, async_checkpointer_type=kind)
    future.result()


def save_matrix(folder: Path) -> None:
    """Save once for every case."""
    for step, case in enumerate(MATRIX):
        kind, mode, threads, format_name = case
        path = folder / case_name(case) / f"step-{step}"
        writer = GuardedWriter(
            f"file://{path}" if kind == "url" else str(path),
            run=RUN,
            step=step,
            thread_count=threads,
            serialization_format=SerializationFormat(format_name),
        )
        # torch's own reader of safetensors takes no shard that holds objects beside tensors
        _save(state_of(step, with_objects=format_name == "torch_save"), writer, mode)


class _FailsOnRankOne(DefaultSavePlanner):
    """Resolves nothing on rank 1: its write fails when others have written already."""

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        if dist.get_rank() == 1:
            msg = "the node is gone"
            raise OSError(msg)
        return super().resolve_data(write_item)


def _outcome_of(act: Callable[[], object]) -> str:
    try:
        act()
    except CheckpointException as error:
        return f"CheckpointException: {'; '.join(str(pair[0]) for pair in error.failures.values())}"
    return "returned"


def torn_resave(folder: Path) -> str:
    """Save step 1 whole, and step 2 over it until one rank fails."""
    path = folder / "torn" / "step-1"
    save(state_of(1), storage_writer=GuardedWriter(path, run=RUN))
    writer = GuardedWriter(path, run=RUN, step=2)
    return _outcome_of(lambda: save(state_of(2), storage_writer=writer, planner=_FailsOnRankOne()))


def resave(folder: Path) -> str:
    """Save step 1, and step 2 over it, with one writer; more files first."""
    path = folder / "resaved" / "latest"
    writer = GuardedWriter(path, run=RUN, step=1, thread_count=3)
    save(state_of(1), storage_writer=writer)
    first = json.loads((path / "ckptguard.manifest.json").read_text())["save_id"]
    writer.describe(step=2)
    dist.barrier()
    save(state_of(2), storage_writer=writer)
    return str(first)


class _FailingThreads(FileSystem):
    """A file system on which only the main thread can write."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        if threading.current_thread() is not threading.main_thread():
            msg = "no space left, for this thread"
            raise OSError(msg)
        with super().create_stream(path, mode) as stream:
            yield stream


def swallowed_error(folder: Path) -> str:
    """Save with threads that fail; stock would return normally."""
    path = folder / "swallowed" / "step-1"
    save(state_of(1), storage_writer=GuardedWriter(path, run=RUN))
    writer = GuardedWriter(path, run=RUN, thread_count=3, single_file_per_rank=False)
    writer.fs._inner = _FailingThreads()
    held = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        return _outcome_of(lambda: save(state_of(2), storage_writer=writer))
    finally:
        threading.excepthook = held


def empty_rank(folder: Path) -> str:
    """Save what rank 0 has alone."""
    state = {"lonely": torch.arange(9)} if dist.get_rank() == 0 else {}
    return _outcome_of(lambda: save(state, storage_writer=GuardedWriter(folder / "empty" / "step-1")))


def each_for_itself(folder: Path) -> str:
    """Save without collectives, over a guarded save."""
    path = folder / "alone" / "step-1"
    save(state_of(1), storage_writer=GuardedWriter(path, run=RUN))
    writer = GuardedWriter(path, run=RUN)
    return _outcome_of(lambda: save(state_of(2), storage_writer=writer, use_collectives=False))


def parts(folder: Path) -> str:
    """Save two parts of one checkpoint, twice, the second time only the first."""
    root = folder / "parts" / "step-1"
    for names in (("model", "optim"), ("model",)):
        for name in names:
            writer = GuardedWriter(root / name, run=RUN, step=1, part=name, parts=("model", "optim"))
            save({name: torch.arange(5)}, storage_writer=writer)
        if len(names) > 1 and dist.get_rank() == 0:
            texts = [(root / name / "ckptguard.manifest.json").read_text() for name in names]
            (folder / "parts.json").write_text(json.dumps([json.loads(text) for text in texts]))
        dist.barrier()
    return "returned"


def main(rank: int, world_size: int, folder: Path) -> None:
    """Save everything."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world_size)
    save_matrix(folder / "matrix")
    acts = (torn_resave, resave, swallowed_error, empty_rank, each_for_itself, parts)
    outcome: dict[str, Any] = {act.__name__: act(folder) for act in acts}
    outcome["counters"] = counters()
    (folder / f"outcome.{rank}.json").write_text(json.dumps(outcome))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

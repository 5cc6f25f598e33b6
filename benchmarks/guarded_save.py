"""The guarded writer beside the stock writer, interleaved in random order, as ratios.

    python benchmarks/guarded_save.py                     # 2 GiB and 4,000 small tensors, 20 pairs each
    python benchmarks/guarded_save.py --gib 0.25 --pairs 5 --only tmpfs,sync

A pair is one save by each writer, in an order drawn from the seed, into fresh folders; before each
save what the last one left is removed and the disk is at rest. Ratios are of one pair; the table gives
their median and quartiles. CPU is that of the process, so it counts the threads of both. An asynchronous
save is timed to its end, and until training may go on ("blocked"). "Hash alone" is the CPU that XXH3-128
takes for the same tensors where they lie in memory, measured beside each pair.
"""

import argparse
import itertools
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import xxhash
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from ckptguard.integrations.dcp import GuardedWriter, counters
from ckptguard.model.policy import GIB, MIB

LARGE_TENSOR_BYTES: Final = 32 * MIB
SMALL_TENSORS: Final = 4000
GOALS: Final = (
    "goals: wall <= 1.03 x, <= 12 us a small item (design §12), CPU <= 1.25 x hash alone (ADR 0013)"
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One save.

    Args:
        wall_s: Until it is committed.
        blocked_s: Until the call returned.
        cpu_s: Of the process.
    """

    wall_s: float
    blocked_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is saved, and in which unit its cost is told."""

    name: str
    state: dict[str, torch.Tensor]
    units: float
    unit: str


def large(gib: float) -> Subject:
    """Return tensors of 32 MiB."""
    generator = torch.Generator().manual_seed(1)
    count = max(1, int(gib * GIB / LARGE_TENSOR_BYTES))
    state = {
        f"layers.{index}.weight": torch.randn(LARGE_TENSOR_BYTES // 4, generator=generator).view(2048, -1)
        for index in range(count)
    }
    gib = count * LARGE_TENSOR_BYTES / GIB
    return Subject(name=f"{gib:g} GiB in {count} tensors", state=state, units=gib, unit="s/GiB")


def small() -> Subject:
    """Return 4,000 tensors of 64 bytes."""
    state = {f"layer.{index:04}.w": torch.full((16,), float(index)) for index in range(SMALL_TENSORS)}
    return Subject(
        name=f"{SMALL_TENSORS} small tensors", state=state, units=SMALL_TENSORS / 1e6, unit="us/item"
    )


def timed_save(state: dict[str, torch.Tensor], writer: Any, *, is_async: bool) -> Cost:  # noqa: ANN401 - of torch
    """Save once."""
    cpu_s, started_s = time.process_time(), time.perf_counter()
    if is_async:
        future: Any = async_save(dict(state), storage_writer=writer, no_dist=True)
        blocked_s = time.perf_counter() - started_s
        future.result()
    else:
        save(dict(state), storage_writer=writer, no_dist=True)
        blocked_s = time.perf_counter() - started_s
    return Cost(
        wall_s=time.perf_counter() - started_s, blocked_s=blocked_s, cpu_s=time.process_time() - cpu_s
    )


WRITERS: Final[dict[str, Callable[[Path], Any]]] = {
    "stock": FileSystemWriter,
    "guarded": lambda path: GuardedWriter(path, step=1),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Pairs of one kind.

    Args:
        folder: Empty.
        count: How many.
        is_async: By `async_save`.
        chance: Gives the order.
    """

    folder: Path
    count: int
    is_async: bool
    chance: random.Random


def hash_alone_s(state: dict[str, torch.Tensor]) -> float:
    """Return the CPU time of one hash over all tensors in memory."""
    started_s, digest = time.process_time(), xxhash.xxh3_128()
    for tensor in state.values():
        digest.update(tensor.numpy().data)
    digest.hexdigest()
    return time.process_time() - started_s


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One save by each writer, and what hashing alone takes."""

    stock: Cost
    guarded: Cost
    hash_alone_s: float

    @property
    def more_cpu_s(self) -> float:
        """What the guarded save adds."""
        return self.guarded.cpu_s - self.stock.cpu_s


def pairs(subject: Subject, run: Run) -> Iterator[Pair]:
    """Yield the costs of each pair; one before them warms everything and is not counted."""
    for number in range(run.count + 1):
        order = sorted(WRITERS)
        run.chance.shuffle(order)
        costs = {}
        for name in order:
            place = run.folder / f"{number}-{name}"
            costs[name] = timed_save(subject.state, WRITERS[name](place), is_async=run.is_async)
            shutil.rmtree(place)
            os.sync()
        alone_s = hash_alone_s(subject.state)
        if number:
            yield Pair(stock=costs["stock"], guarded=costs["guarded"], hash_alone_s=alone_s)


def spread(values: Sequence[float]) -> str:
    """Return median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def row(subject: Subject, where: str, mode: str, measured: Sequence[Pair]) -> str:
    """Return one row of the table."""
    wall = [pair.guarded.wall_s / pair.stock.wall_s for pair in measured]
    blocked = [pair.guarded.blocked_s / pair.stock.blocked_s for pair in measured]
    best = min(pair.guarded.wall_s for pair in measured) / min(pair.stock.wall_s for pair in measured)
    more = statistics.median(pair.more_cpu_s for pair in measured) / subject.units
    alone = statistics.median(pair.hash_alone_s for pair in measured) / subject.units
    cells = (
        *(subject.name, where, mode, str(len(measured))),
        f"{statistics.median(pair.stock.wall_s for pair in measured):.3f}",
        *(spread(wall), f"{best:.3f}", spread(blocked)),
        *(f"{more:.3f} {subject.unit}", f"{alone:.3f} {subject.unit}"),
    )
    return f"| {' | '.join(cells)} |"


HEAD: Final = """
| saved | where | how | pairs | stock, s | wall ratio | best/best | blocked ratio | more CPU | hash alone |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def memory(subject: Subject, folder: Path) -> str:
    """Say what each writer allocates at most, as Python sees it."""
    peaks = {}
    for name, writer in WRITERS.items():
        tracemalloc.start()
        save(dict(subject.state), storage_writer=writer(folder / name), no_dist=True)
        peaks[name] = tracemalloc.get_traced_memory()[1] / MIB
        tracemalloc.stop()
        shutil.rmtree(folder / name)
    return f"Python memory at its peak, {subject.name}: " + ", ".join(
        f"{n} {p:.1f} MiB" for n, p in peaks.items()
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"))  # noqa: S108 - a tmpfs is meant
    parser.add_argument("--only", default="", help="words that a row must have, e.g. tmpfs,sync,large")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chance = random.Random(options.seed)  # noqa: S311 - an order, no secret
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}")
    print(f"seed {options.seed}; {GOALS}")
    print(HEAD)
    wanted = set(filter(None, options.only.split(",")))
    roots = {"tmpfs": options.tmpfs, "disk": options.disk}
    subjects = {"large": large(options.gib), "small": small()}
    for kind, where, mode in itertools.product(subjects, roots, ("sync", "async")):
        if wanted <= {kind, where, mode}:
            with tempfile.TemporaryDirectory(dir=roots[where], prefix="guarded-save-") as folder:
                run = Run(folder=Path(folder), count=options.pairs, is_async=mode == "async", chance=chance)
                measured = list(pairs(subjects[kind], run))
            print(row(subjects[kind], where, mode, measured), flush=True)
    print()
    with tempfile.TemporaryDirectory(dir=options.tmpfs, prefix="guarded-save-") as folder:
        print(memory(subjects["large"], Path(folder)))
    assert set(counters()) == {"saves_guarded"}, counters()


if __name__ == "__main__":
    main()

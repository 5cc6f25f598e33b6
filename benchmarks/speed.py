"""Speed and memory of the one pass, beside reading alone, sha256 and stock `dcp.load`, in one run.

    python benchmarks/speed.py                      # 2 GiB of large tensors, 2 x 2,000 small ones
    python benchmarks/speed.py --gib 0.25 --rounds 3

Every variant reads the same files with the same number of threads and the same block size,
in turn, for several rounds; the tables give medians and ratios of medians within each round.
Bytes read are counted at the file descriptor (/proc/self/io, rchar).
"""

import argparse
import hashlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from ckptguard.canary.dcp_load import load_through_dcp
from ckptguard.formats.checkpoint import distinct_shards
from ckptguard.formats.reopen import open_checkpoint
from ckptguard.model.layout import Shard
from ckptguard.model.policy import GIB, MIB, Limits, NumericsMode
from ckptguard.scan.files import ScanSetting, scan_files
from ckptguard.scan.spans import BLOCK_BYTES
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore

LARGE_TENSOR_BYTES = 32 * MIB
SMALL_TENSORS_PER_SHARD = 2000


@dataclass
class Subject:
    """One checkpoint and how it is opened."""

    folder: Path
    tensors: dict[str, torch.Tensor]

    @property
    def files(self) -> list[Path]:
        """Its shards."""
        return sorted(self.folder.glob("*.distcp"))

    @property
    def num_bytes(self) -> int:
        """Bytes of all files, metadata too."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


Variant = Callable[[Subject, int], None]


def write_large(folder: Path, gib: float) -> Subject:
    """Write tensors of 32 MiB in two shards."""
    generator = torch.Generator().manual_seed(1)
    count = max(2, int(gib * GIB / LARGE_TENSOR_BYTES))
    tensors = {
        f"layers.{index}.weight": torch.randn(LARGE_TENSOR_BYTES // 4, generator=generator).view(2048, -1)
        for index in range(count)
    }
    return _save(folder, tensors)


def write_small(folder: Path) -> Subject:
    """Write 2 x 2,000 tensors of 256 bytes in two shards."""
    tensors = {f"layer.{i:04}.w": torch.full((64,), float(i)) for i in range(2 * SMALL_TENSORS_PER_SHARD)}
    return _save(folder, tensors)


def _save(folder: Path, tensors: dict[str, torch.Tensor]) -> Subject:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_save(dict(tensors), storage_writer=FileSystemWriter(folder, thread_count=2), no_dist=True)
    return Subject(folder, tensors)


def read_only(subject: Subject, threads: int) -> None:
    """Read every shard in blocks, and do nothing with the bytes."""
    _each_file(subject, threads, lambda _: None)


def sha256(subject: Subject, threads: int) -> None:
    """Read and hash as `sha256sum` does."""

    def hash_blocks(blocks: Iterator[memoryview]) -> None:
        digest = hashlib.sha256()
        for block in blocks:
            digest.update(block)

    _each_file(subject, threads, hash_blocks)


def _each_file(subject: Subject, threads: int, use: Callable[[Iterator[memoryview]], None]) -> None:
    def one(path: Path) -> None:
        buffer = memoryview(bytearray(BLOCK_BYTES))
        with path.open("rb", buffering=0) as file:

            def blocks() -> Iterator[memoryview]:
                while count := file.readinto(buffer):
                    yield buffer[:count]

            stream = blocks()
            use(stream)
            for _ in stream:
                pass

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, subject.files))


def stock(subject: Subject, threads: int) -> None:
    """Load with stock `dcp.load` into preallocated tensors, with as many intra-op threads."""
    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_load(dict(subject.tensors), storage_reader=FileSystemReader(subject.folder), no_dist=True)
    torch.set_num_threads(1)


def content(subject: Subject, threads: int) -> None:
    """Run the pass of `check --depth content`."""
    shards, setting = _opened(subject, threads)
    for scan in scan_files(shards, setting):
        assert not scan.findings, scan.findings


def full(subject: Subject, threads: int, *, numerics: NumericsMode) -> None:
    """Run the pass of `check --depth load`, in this process."""
    shards, setting = _opened(subject, threads)
    load_through_dcp(
        shards,
        setting,
        device=torch.device("cpu"),
        numerics=numerics,
        rank=0,
        world_size=1,
        on_scan=_expect_sound,
    )


def _expect_sound(scan: object) -> None:
    assert not scan.findings, scan.findings  # type: ignore[attr-defined]


def _opened(subject: Subject, threads: int) -> tuple[list[Shard], ScanSetting]:
    store = LocalStore(subject.folder)
    listing = list_folder(store, "", max_files=100_000)
    layouts = open_checkpoint(store, listing, Limits())
    return distinct_shards(layouts), ScanSetting(store=store, root="", jobs=threads)


VARIANTS: dict[str, Variant] = {
    "read only": read_only,
    "sha256": sha256,
    "stock dcp.load": stock,
    "check --depth content": content,
    "check --depth load, numerics off": lambda subject, threads: full(
        subject, threads, numerics=NumericsMode.OFF
    ),
    "check --depth load, numerics report": lambda subject, threads: full(
        subject, threads, numerics=NumericsMode.REPORT
    ),
}


def drop_cache(subject: Subject) -> None:
    """Forget the files' pages; they were synced when written."""
    for path in subject.folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure(
    subject: Subject, threads: int, rounds: int, *, is_cold: bool, names: list[str]
) -> dict[str, list[float]]:
    """Run the variants in turn; return seconds of each, one per round."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names:
            if is_cold:
                drop_cache(subject)
            started = time.perf_counter()
            VARIANTS[name](subject, threads)
            if number > 0:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def print_table(title: str, subject: Subject, seconds: dict[str, list[float]]) -> None:
    """Print medians, and the median of the ratios of each round."""
    print(f"\n### {title}\n")
    print("| variant | s (median) | GB/s | speed / read only | speed / stock |")
    print("| --- | --- | --- | --- | --- |")
    for name, values in seconds.items():
        median = statistics.median(values)
        columns = [f"{median:.3f}", f"{subject.num_bytes / median / 1e9:.2f}"]
        for base in ("read only", "stock dcp.load"):
            pairs = zip(seconds.get(base, []), values, strict=False)
            ratios = [theirs / ours for theirs, ours in pairs]
            columns.append(f"{statistics.median(ratios):.2f}" if ratios else "")
        print(f"| {name} | {' | '.join(columns)} |")


def print_small_table(subject: Subject, seconds: dict[str, list[float]]) -> None:
    """Print microseconds per item, metadata included."""
    print(f"\n### {len(subject.tensors)} small tensors, microseconds per item, metadata included\n")
    print("| variant | median | best |")
    print("| --- | --- | --- |")
    for name, values in seconds.items():
        per_item = [value / len(subject.tensors) * 1e6 for value in values]
        print(f"| {name} | {statistics.median(per_item):.1f} | {min(per_item):.1f} |")


def print_bytes_and_memory(subject: Subject, threads: int) -> None:
    """Count bytes at the descriptor, and the memory that one pass adds to a process with torch."""
    before = _bytes_read()
    full(subject, threads, numerics=NumericsMode.REPORT)
    read = _bytes_read() - before
    print(f"\nBytes read / checkpoint bytes, full protocol: {read / subject.num_bytes:.4f}")
    child = subprocess.run(
        [sys.executable, __file__, "--memory-of", str(subject.folder), "--threads", str(threads)],
        check=True,
        capture_output=True,
        text=True,
    )
    print(child.stdout.strip())


def print_memory_of(folder: Path, threads: int) -> None:
    """In a fresh process: peak memory before and after one full pass."""
    subject = Subject(folder, {})
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak to what is resident now
    before = _status_kib("VmRSS")
    full(subject, threads, numerics=NumericsMode.REPORT)
    print(f"Peak memory above the interpreter with torch: {(_status_kib('VmHWM') - before) / 1024:.1f} MiB")


def _status_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def _bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def main() -> None:
    """Parse the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of the large checkpoint")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        print_memory_of(arguments.memory_of, arguments.threads[0])
        return
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    place = Path(tempfile.mkdtemp(prefix="ckptguard-speed-", dir=arguments.folder))
    try:
        _run(place, arguments)
    finally:
        shutil.rmtree(place)


def _run(place: Path, arguments: argparse.Namespace) -> None:
    large, small = write_large(place / "large", arguments.gib), write_small(place / "small")
    names = list(VARIANTS)
    for threads in arguments.threads:
        hot = measure(large, threads, arguments.rounds, is_cold=False, names=names)
        print_table(f"{large.num_bytes / GIB:.2f} GiB, hot, {threads} thread(s)", large, hot)
    cold_names = [name for name in names if name != "sha256"]
    for threads in arguments.threads:
        cold = measure(large, threads, max(2, arguments.rounds // 2), is_cold=True, names=cold_names)
        print_table(f"{large.num_bytes / GIB:.2f} GiB, cold, {threads} thread(s)", large, cold)
    print_small_table(small, measure(small, 1, arguments.rounds, is_cold=False, names=names))
    print_bytes_and_memory(large, max(arguments.threads))


if __name__ == "__main__":
    main()

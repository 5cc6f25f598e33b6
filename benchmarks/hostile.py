"""What the largest inputs cost: reading their metadata, and the whole check at depth `structure`.

    python benchmarks/hostile.py [--items 1000000] [--slices 64]

The file is written, and read in both ways, by `metadata_scale.py`; this adds the command
itself on a checkpoint whose shards are there (as holes of the right length), and a
`.metadata` of up to 16 MiB that is all nesting, or all small texts. Each runs in a process of its own;
memory is that process's peak, above the same command on a checkpoint of one tensor.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from ckptguard.testing import raw_pickles as raw
from ckptguard.testing.edits import set_times
from ckptguard.testing.raw_dcp import RawCheckpoint

SCALE: Final = Path(__file__).with_name("metadata_scale.py")
ALLOWED_BASE_BYTES: Final = 64 << 20
ALLOWED_PER_BYTE: Final = 16
BYTES_PER_ITEM: Final = 128 * 4096 * 2 + 1577  # as metadata_scale.py writes them
MIB: Final = 1 << 20

_MEASURED: Final = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=sys.stderr.fileno())
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
sys.exit(code)
"""


class Row(NamedTuple):
    """One line of the table."""

    what: str
    file_bytes: int
    seconds: float
    peak_bytes: int
    verdict: str = ""


def measure_check(folder: Path) -> tuple[float, int, str]:
    """Run the command; return seconds, peak bytes and verdict."""
    command = [sys.executable, "-m", "ckptguard", "check", str(folder), "--depth", "structure"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *command, "--settle", "0", "--json"],
        capture_output=True,
        check=False,
        text=True,
    )
    seconds = time.perf_counter() - started
    return seconds, int(done.stdout), json.loads(done.stderr)["verdict"]


def read_rows(path: Path, num_items: int) -> list[Row]:
    """Read one metadata file by each of `metadata_scale.py`'s ways."""
    rows = []
    for step in ("pickle", "layout"):
        command = [sys.executable, str(SCALE), "--read", str(path), "--step", step]
        told = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        assert told["items"] == num_items
        rows.append(Row(f"read, {step}", told["file_bytes"], told["seconds"], told["peak_bytes"]))
    return rows


def check_row(what: str, folder: Path, idle_bytes: int) -> Row:
    """Check one folder."""
    seconds, peak_bytes, verdict = measure_check(folder)
    size = (folder / ".metadata").stat().st_size
    return Row(f"check, {what}", size, seconds, peak_bytes - idle_bytes, verdict)


def write_items(path: Path, folder: Path, num_items: int, num_slices: int) -> None:
    """Write the metadata alone at `path`, and as a checkpoint whose shards are holes."""
    path.parent.mkdir()
    folder.mkdir()
    sizes = ["--items", str(num_items), "--slices", str(num_slices)]
    subprocess.run([sys.executable, str(SCALE), "--write", str(path), *sizes], check=True)
    (folder / ".metadata").hardlink_to(path)
    for rank in range(num_slices):
        with (folder / f"__{rank}_0.distcp").open("wb") as stream:
            stream.truncate(num_items // num_slices * BYTES_PER_ITEM)
    set_times(folder)


def nested(length_bytes: int) -> RawCheckpoint:
    """Return a checkpoint whose planner data is nothing but lists in lists."""
    depth = length_bytes // 2
    return RawCheckpoint(planner_data=b"]" * depth + b"a" * (depth - 1))


def print_table(rows: list[Row]) -> None:
    """Print one line per measurement."""
    print(f"{'what':<28}{'file MB':>9}{'seconds':>9}{'peak MiB':>10}{'allowed':>9}{'per byte':>10}  verdict")
    for row in rows:
        allowed = (ALLOWED_BASE_BYTES + ALLOWED_PER_BYTE * row.file_bytes) / MIB
        per_byte = row.peak_bytes / row.file_bytes
        print(
            f"{row.what:<28}{row.file_bytes / 1e6:>9.1f}{row.seconds:>9.2f}{row.peak_bytes / MIB:>10.0f}"
            f"{allowed:>9.0f}{per_byte:>10.2f}  {row.verdict}"
        )


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--slices", type=int, default=64)
    options = parser.parse_args()
    num_items = options.items // options.slices * options.slices
    with tempfile.TemporaryDirectory() as work:
        idle = RawCheckpoint().write(Path(work) / "idle")
        _, idle_bytes, _ = measure_check(idle)
        alone, folder = Path(work) / "alone" / ".metadata", Path(work) / "items"
        write_items(alone, folder, num_items, options.slices)
        rows = read_rows(alone, num_items)
        rows.append(check_row(f"{num_items:,} items", folder, idle_bytes))
        length_bytes = min(alone.stat().st_size, 16 * MIB)
        deep = nested(length_bytes).write(Path(work) / "nested")
        rows.append(check_row("nothing but nesting", deep, idle_bytes))
        keys = raw.list_of([raw.text("x")] * (length_bytes // 6))
        wide = RawCheckpoint(planner_data=keys).write(Path(work) / "wide")
        rows.append(check_row("nothing but small texts", wide, idle_bytes))
    print_table(rows)


if __name__ == "__main__":
    main()

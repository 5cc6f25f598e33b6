"""The demo: a real checkpoint, one flipped bit, and who notices.

    python examples/demo/run.py [FOLDER]

Every step's exit code is held against what it must be, so the demo fails when the product does.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
TENSOR: Final = "model.layers.3.qkv.weight"
VALID, INVALID = 0, 30  # exit codes of `ckptguard check`
BIT_OF_EXPONENT: Final = ("--bit", "2", "--seed", "4")


def main(folder: Path) -> None:
    """Tell the story."""
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    good, damaged = folder / "step-2", folder / "step-2-damaged"

    say("1. Four ranks train a transformer with FSDP2 and AdamW, and save with torch's own writer.")
    run(["torchrun", "--nproc-per-node=4", HERE / "train.py", good])
    describe(good)

    say("2. Before anything resumes from it: every byte is read, every tensor loaded.")
    run(["ckptguard", "check", good], expected=VALID)

    say(f"3. A copy, in which one bit of {TENSOR} is flipped, as a disk or a cable would.")
    run(["ckptguard", "damage", good, damaged, "--kind", "bit_flip", "--fqn", TENSOR, *BIT_OF_EXPONENT])
    require(sizes(good) == sizes(damaged), "the copy has the same files of the same sizes")

    say("4. Stock torch.distributed.checkpoint loads the damaged copy without a word.")
    seen = json.loads(run([sys.executable, HERE / "stock_load.py", good, damaged], is_captured=True))
    require(seen["differing"] == 1, "stock dcp.load accepted both, and one value differs")
    print(f"   {seen['tensor']}{seen['index']} was saved as {seen['right']:.6g}")
    print(f"   {seen['tensor']}{seen['index']} is loaded as {seen['wrong']:.6g}: no error, no warning")

    say("5. ckptguard says where.")
    run(["ckptguard", "check", damaged], expected=INVALID)
    require_named(good, damaged)
    print(f"\nDone in {time.monotonic() - started:.0f} s. Everything lies in {folder}.")


def require_named(good: Path, damaged: Path) -> None:
    """Hold the report against the damage: file, tensor, slice and offset are named."""
    text = run(
        ["ckptguard", "check", damaged, "--depth", "content", "--json"], expected=INVALID, is_captured=True
    )
    finding: dict[str, Any] = json.loads(text)["findings"][0]
    require(finding["fqn"] == TENSOR, "the report names the tensor")
    require(finding["file"].endswith(".distcp"), f"the report names the file, {finding['file']}")
    require(finding["slice"] is not None, f"the report names the slice, {finding['slice']}")
    first, length = finding["offset"], finding["length_bytes"]
    flipped = first_difference(good / finding["file"], damaged / finding["file"])
    require(
        first <= flipped < first + length, f"the report's {length} bytes from {first} hold byte {flipped}"
    )


def first_difference(one: Path, other: Path) -> int:
    """Return the offset of the first byte in which two files of one length differ."""
    left, right = one.read_bytes(), other.read_bytes()
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if left[low:middle] != right[low:middle] else (middle, high)
    return low


def run(command: Sequence[str | Path], *, expected: int = 0, is_captured: bool = False) -> str:
    """Show a command, run it, hold its exit code against what is expected; return what was captured."""
    words = [str(word) for word in command]
    print(f"\n$ {shlex.join(shorten(word) for word in words)}", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        words,
        check=False,
        stdout=subprocess.PIPE if is_captured else None,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    print(f"   (exit code {done.returncode}, {time.monotonic() - started:.1f} s)")
    require(done.returncode == expected, f"exit code {expected}", is_silent=True)
    return done.stdout or ""


def shorten(word: str) -> str:
    """Return a path as it reads from here."""
    path = Path(word)
    if path == Path(sys.executable):
        return "python"
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


def describe(checkpoint: Path) -> None:
    """Say what was written."""
    files = sizes(checkpoint)
    print(f"   {len(files)} files, {sum(files.values()) / 1e6:.0f} MB: {', '.join(sorted(files))}")


def sizes(checkpoint: Path) -> dict[str, int]:
    """Return the length of every file by name."""
    return {file.name: file.stat().st_size for file in checkpoint.iterdir()}


def say(text: str) -> None:
    """Start a chapter."""
    print(f"\n{text}", flush=True)


def require(is_true: bool, claim: str, *, is_silent: bool = False) -> None:  # noqa: FBT001 - reads as a sentence
    """End the demo where a claim does not hold."""
    if not is_true:
        sys.exit(f"\nThe demo failed: it is not true that {claim}.")
    if not is_silent:
        print(f"   + {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".demo").resolve())

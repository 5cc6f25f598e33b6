"""The demo: a real checkpoint, one flipped bit, who notices, and from where a launcher resumes.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
TENSOR: Final = "model.layers.3.qkv.weight"
RUN: Final = "demo"
VALID, INVALID = 0, 30  # exit codes of `ckptguard check`
BIT_OF_EXPONENT: Final = ("--bit", "2", "--seed", "4")


def main(folder: Path) -> None:
    """Tell the story."""
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    checkpoints = folder / "checkpoints" / RUN

    say("1. Four ranks train a transformer with FSDP2 and AdamW, and save three times, with torch's writer.")
    run(["torchrun", "--nproc-per-node=4", HERE / "train.py", checkpoints])
    describe(checkpoints / "step-3")
    without_a_server(checkpoints / "step-3", damaged=folder / "step-3-damaged")
    with_the_service(folder, checkpoints)
    print(f"\nDone in {time.monotonic() - started:.0f} s. Everything lies in {folder}.")


def without_a_server(good: Path, *, damaged: Path) -> None:
    """Flip one bit, and see who notices."""
    say("2. Before anything resumes from it: every byte is read, every tensor loaded.")
    run(["ckptguard", "check", good], expected=VALID)

    say(f"3. A copy, in which one bit of {TENSOR} is flipped, as a disk or a cable would.")
    damage(good, damaged)
    require(sizes(good) == sizes(damaged), "the copy has the same files of the same sizes")

    say("4. Stock torch.distributed.checkpoint loads the damaged copy without a word.")
    seen = json.loads(run([sys.executable, HERE / "stock_load.py", good, damaged], is_captured=True))
    require(seen["differing"] == 1, "stock dcp.load accepted both, and one value differs")
    print(f"   {seen['tensor']}{seen['index']} was saved as {seen['right']:.6g}")
    print(f"   {seen['tensor']}{seen['index']} is loaded as {seen['wrong']:.6g}: no error, no warning")

    say("5. ckptguard says where.")
    run(["ckptguard", "check", damaged], expected=INVALID)
    require_named(good, damaged)


def with_the_service(folder: Path, checkpoints: Path) -> None:
    """Register, validate in the background, lose a checkpoint, and ask where to resume."""
    say("6. The same as a service: API, one worker and an SQLite file. The training job registers each save.")
    with service(folder, store=checkpoints.parent):
        for step in (1, 2, 3):
            run(["ckptguard", "register", checkpoints / f"step-{step}", "--run", RUN, "--step", str(step)])
        resume(expected=VALID, path=checkpoints / "step-3", wait=True)

        say("7. The newest rots in storage. A worker reads it again; the launcher gets the older one.")
        rot(checkpoints / "step-3", aside=folder / "aside-3")
        run(["ckptguard", "revalidate", "--run", RUN, "--step", "3", "--wait", "120s"], expected=INVALID)
        resume(expected=VALID, path=checkpoints / "step-2")

        say("8. All of them rot. Nothing is printed, and nothing starts from scratch.")
        for step in (1, 2):
            rot(checkpoints / f"step-{step}", aside=folder / f"aside-{step}")
            run(
                ["ckptguard", "revalidate", "--run", RUN, "--step", str(step), "--wait", "120s"],
                expected=INVALID,
            )
        resume(expected=INVALID, path=None)
        run(["ckptguard", "history", "--run", RUN])


def resume(*, expected: int, path: Path | None, wait: bool = False) -> None:
    """Ask as a launcher does, and hold exit code and standard output."""
    waiting = ["--wait", "120s"] if wait else []
    printed = run(["ckptguard", "resume", "--run", RUN, *waiting], expected=expected, is_captured=True)
    print(f"   stdout: {printed!r}")
    require(printed == (f"{path}\n" if path else ""), f"standard output is {path or 'empty'}")


@contextmanager
def service(folder: Path, *, store: Path) -> Iterator[None]:
    """Run `ckptguard serve` until the block ends; every command below finds it by its data folder.

    However the demo ends, SIGKILL too, its end of the pipe is closed, and the service ends.
    """
    data = folder / "service"
    os.environ["CKPTGUARD_DATA_DIR"] = str(data)
    command = ["ckptguard", "serve", "--store", f"demo={store}", "--data-dir", str(data), "--port", "0"]
    command.append("--until-stdin-ends")
    print(f"\n$ {shlex.join(shorten(word) for word in command)} &", flush=True)
    with (folder / "service.log").open("wb") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    try:
        wait_for(data / "address.json", server)
        yield
    finally:
        server.terminate()
        server.wait(30)


def wait_for(file: Path, server: "subprocess.Popen[bytes]") -> None:
    """Return when the service has said where it listens."""
    deadline = time.monotonic() + 60
    while not file.exists():
        require(server.poll() is None, "the service runs", is_silent=True)
        require(time.monotonic() < deadline, "the service starts within a minute", is_silent=True)
        time.sleep(0.05)


def damage(good: Path, damaged: Path) -> None:
    """Flip one bit of the exponent of one weight in a copy."""
    run(["ckptguard", "damage", good, damaged, "--kind", "bit_flip", "--fqn", TENSOR, *BIT_OF_EXPONENT])


def rot(checkpoint: Path, *, aside: Path) -> None:
    """Damage a checkpoint where it lies; its file names, sizes and times stay as they were."""
    checkpoint.rename(aside)
    damage(aside, checkpoint)


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

"""The story that every trainer's example has to tell, with real processes.

Train with saves that register themselves; the newest rots; `ckptguard resume` picks the one before;
training goes on from it, and its losses are those of the run that nothing happened to, bit for bit.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckptguard.testing.edits import flip_bit

PROJECT: Final = Path(__file__).resolve().parent.parent.parent
RUN: Final = "tiny"
STEPS: Final = 6
_LOSS: Final = re.compile(r"^step (\d+): loss (\S+)$", re.MULTILINE)
_WITHIN_S: Final = 240.0
_TRAINING_S: Final = 600.0
"""DeepSpeed compiles an extension when it first runs on a machine."""
_VALID, _INVALID = 0, 30  # exit codes of `ckptguard resume` and `revalidate`


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One run of one example, told to a service that watches its folder.

    Args:
        example: Folder below `examples`.
        folder: What the trainer writes to.
        assurance: That a launcher asks for.
        environment: Of every process.
    """

    example: str
    folder: Path
    assurance: str
    environment: Mapping[str, str]

    def train(self, *options: object) -> dict[int, str]:
        """Run the example on two ranks; return the losses by step, as they were printed."""
        script = PROJECT / "examples" / self.example / "train.py"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        done = subprocess.run(
            [*launch, script, self.folder, RUN, *map(str, options)],
            check=False,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=_TRAINING_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.ckptguard("spool", "--send")  # what an ending process waits for is bounded
        return {int(step): loss for step, loss in _LOSS.findall(done.stdout)}

    def ckptguard(self, *arguments: object, expected: int = 0) -> str:
        """Run a command, hold its exit code, and return its standard output."""
        done = subprocess.run(
            [sys.executable, "-m", "ckptguard", *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=_WITHIN_S,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout

    def resume(self) -> Path:
        """Ask as a launcher does; what is queued is waited for."""
        asked = ("--run", RUN, "--wait", "120s", "--min-assurance", self.assurance)
        return Path(self.ckptguard("resume", *asked).rstrip("\n"))

    def shown(self, step: int) -> dict[str, Any]:
        """Return what the service knows of the one checkpoint of a step."""
        listed = json.loads(self.ckptguard("history", "--run", RUN, "--json"))["checkpoints"]
        [row] = [one for one in listed if one["step"] == step]
        told: dict[str, Any] = json.loads(self.ckptguard("show", row["id"], "--json"))["checkpoint"]
        return told

    def rot(self, step: int, shard: Path) -> None:
        """Flip one bit in the middle of a shard, as a disk would, and have it looked at again."""
        flip_bit(shard.parent, shard.name, offset=shard.stat().st_size // 2, bit=3)
        self.ckptguard("revalidate", "--run", RUN, "--step", step, "--wait", "120s", expected=_INVALID)


def largest(folder: Path, pattern: str) -> Path:
    """Return the largest file below a folder that a pattern names: there is data in its middle."""
    return max(folder.rglob(pattern), key=lambda file: file.stat().st_size)


@contextmanager
def served_story(example: str, tmp_path: Path, *, assurance: str = "loaded") -> Iterator[Story]:
    """Run `ckptguard serve` over the folder of a story until the block ends."""
    folder, data = tmp_path / RUN, tmp_path / "service"
    environment = _environment(tmp_path, data)
    command = [sys.executable, "-m", "ckptguard", "serve", "--store", f"demo={tmp_path}"]
    command += ["--data-dir", str(data), "--port", "0", "--until-stdin-ends"]
    with (tmp_path / "service.log").open("wb") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    try:
        _wait_for(data / "address.json", server, tmp_path / "service.log")
        yield Story(example=example, folder=folder, assurance=assurance, environment=environment)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def _environment(tmp_path: Path, data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    paths = [str(PROJECT / part) for part in ("", "api", "workers", "migrations")]
    given = {"PYTHONPATH": os.pathsep.join([*paths, *filter(None, [kept.get("PYTHONPATH")])])}
    ours = {"CKPTGUARD_DATA_DIR": str(data), "CKPTGUARD_SPOOL": str(tmp_path / "spool")}
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return kept | given | ours | quiet


def _wait_for(file: Path, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not file.exists():
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)

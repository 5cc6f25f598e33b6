"""A training job that saves with stock `dcp.save`, and halts where the test wants to look.

Run as `python -m tests.integration.adopt_writer ROOT STEP [STEP ...]`. Before each metadata file it
creates `ROOT/../halted.STEP` and goes on when `ROOT/../go.STEP` is there; a step named twice is saved twice.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save


class HaltingWriter(FileSystemWriter):
    """Stock, but for a halt after the shards and before the metadata."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._halted = folder.parent.parent / f"halted.{name}"
        self._go = folder.parent.parent / f"go.{name}"

    def finish(self, metadata: Any, results: Any) -> None:  # noqa: ANN401 - torch's signature
        """Halt, then finish."""
        self._halted.touch()
        until = time.monotonic() + 120
        while not self._go.exists():
            assert time.monotonic() < until, "nobody said go"
            time.sleep(0.01)
        super().finish(metadata, results)


def main() -> None:
    """Save each step."""
    root = Path(sys.argv[1])
    for count, step in enumerate(sys.argv[2:]):
        state = {"w": torch.full((64, 64), float(count)), "step": int(step)}
        name = step if step not in sys.argv[2 : 2 + count] else f"{step}.again"
        save(state, storage_writer=HaltingWriter(root / f"step-{step}", name), no_dist=True)


if __name__ == "__main__":
    main()

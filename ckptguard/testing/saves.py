"""Real saves for the test kit: written once by stock torch, copied by every case.

One process imports torch, forks four ranks (gloo, CPU) and writes everything in one
process group; starting torch once per save would take minutes.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

BASE: Final = "base_step1"
"""World 4: `model.w` and `optim.exp_avg.w` (64 x 32, sharded by rows), `model.bias`, objects."""
BASE_OLDER: Final = "base_step0"
BASE_NEWER: Final = "base_step2"
BASE_NEWEST: Final = "base_step3"
BASE_NEWER_WORLD_2: Final = "base_step2_world2"
HF_SHARDED: Final = "hf_sharded"
"""Two safetensors shards and an index: `a`, `b` in the first, `c` in the second."""
TORCH_SAVE: Final = "torch_save"
"""One `model.pt` in a folder of its own."""
DEEPSPEED: Final = "deepspeed"
"""`latest` and `global_step10/` with one model part and four optimizer parts."""
EXECUTED_MARKER: Final = "EXECUTED"
"""File beside the saves that the hostile pickles would create; it must never exist."""
_TIMEOUT_S: Final = 180


class SavesFailedError(RuntimeError):
    """The writer process failed; the message holds the end of its output."""


def write_saves(root: Path) -> Path:
    """Write every save below a new folder.

    Returns:
        `root`, with one folder per save.

    Raises:
        SavesFailedError: Torch is not installed, or a rank failed.

    Cost: about 10 s on two cores.
    """
    root.mkdir(parents=True)
    done = subprocess.run(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "ckptguard.testing.save_worker", str(root)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.returncode != 0:
        raise SavesFailedError(done.stderr[-4000:])
    return root

"""Real processes of the installed command, on small real checkpoints."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptguard.testing.edits import copy_checkpoint

Ckptguard = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment() -> dict[str, str]:
    """Return an environment in which `ckptguard` and `python` are those of the tests."""
    bin_folder = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "TERM"}}
    return kept | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def ckptguard(environment: dict[str, str], tmp_path: Path) -> Ckptguard:
    """Return a runner of the command; output is captured, so it is a pipe."""

    def run(*arguments: object, **changes: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "ckptguard", *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment | changes,
        )

    return run


@pytest.fixture(scope="session")
def own_corpus() -> Path:
    """Return the folder of small real checkpoints that the tests own."""
    return Path(__file__).resolve().parent.parent / "data" / "corpus"


@pytest.fixture
def run_folder(tmp_path: Path, own_corpus: Path) -> Path:
    """Return a folder with one healthy DCP checkpoint, `step-2`."""
    folder = tmp_path / "run-7"
    copy_checkpoint(own_corpus / "dcp_torch2_14_1_fsdp2_ws2", folder / "step-2")
    return folder

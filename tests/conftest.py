"""Fixtures that several kinds of test share."""

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """Return the folder of real checkpoints; a missing one is an error, never a skip."""
    folder = Path(os.environ.get("CKPTGUARD_CORPUS", PROJECT.parent / "shared" / "corpus"))
    if not folder.is_dir():
        pytest.fail(f"no corpus at {folder}; set CKPTGUARD_CORPUS to the folder of real checkpoints")
    return folder

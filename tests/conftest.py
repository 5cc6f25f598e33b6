"""Fixtures that several kinds of test share."""

import os
from pathlib import Path

import pytest

from ckptguard.testing.saves import write_saves

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """Return the folder of real checkpoints; a missing one is an error, never a skip."""
    folder = Path(os.environ.get("CKPTGUARD_CORPUS", PROJECT.parent / "shared" / "corpus"))
    if not folder.is_dir():
        pytest.fail(f"no corpus at {folder}; set CKPTGUARD_CORPUS to the folder of real checkpoints")
    return folder


@pytest.fixture(scope="session")
def saves_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the saves of the test kit, written once by stock torch; read only."""
    return write_saves(tmp_path_factory.mktemp("kit") / "saves")

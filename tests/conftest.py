"""Fixtures that several kinds of test share."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptguard.testing.saves import write_saves
from ckptguard_api.database import Database
from tests.databases import fresh_database
from tests.postgres_server import running_server

PROJECT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Let commands that tests start be interrupted, also below a shell that forbade it (`make test &`)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Return the URL of a real PostgreSQL server."""
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Return an empty database at head: the test runs on both kinds."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    with fresh_database(request.param, folder=tmp_path, postgres=server) as empty:
        yield empty

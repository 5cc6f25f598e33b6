"""A running service for tests of HTTP."""

from collections.abc import Iterator

import pytest

from ckptguard_api.database import Database
from tests.databases import fresh_database
from tests.served_app import ServedApp, served_app


@pytest.fixture
def served(database: Database) -> Iterator[ServedApp]:
    """Return a running service with the projects `default` and `other`, on both databases."""
    with served_app(database, projects=("default", "other")) as running:
        yield running


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    """Return one running service for a module: for what is decided before the database matters."""
    folder = tmp_path_factory.mktemp("door")
    with (
        fresh_database("sqlite", folder=folder) as database,
        served_app(database, projects=("default", "other")) as running,
    ):
        yield running

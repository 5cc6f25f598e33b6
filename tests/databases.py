"""Databases for tests of the service, empty and at head."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptguard_api.database import Database
from ckptguard_api.tables import METADATA

from ckptguard.testing.fakes import FakeClock
from tests.postgres_server import create_database, drop_database

_NUMBERS = itertools.count()


@contextmanager
def fresh_database(
    kind: str, *, folder: Path, postgres: str | None = None, clock: FakeClock | None = None
) -> Iterator[Database]:
    """Yield an empty database at head.

    Args:
        kind: `memory`, `sqlite` or `postgresql`.
        folder: For the SQLite file.
        postgres: URL of a server.
        clock: Time; None: real.
    """
    name = f"t{next(_NUMBERS)}"
    if kind == "postgresql":
        assert postgres is not None
        url = create_database(postgres, name)
    else:
        url = "sqlite://" if kind == "memory" else f"sqlite:///{folder / name}.sqlite"
    database = Database(url, clock=clock)
    METADATA.create_all(database.engine)
    yield database
    database.close()
    if postgres is not None and kind == "postgresql":
        drop_database(postgres, name)

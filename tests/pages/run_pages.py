"""A service with runs in every state, for tests of the pages that show them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
from sqlalchemy import select

from ckptguard.model.service import Scope
from ckptguard_api.tables import projects
from tests.databases import fresh_database
from tests.pages.seeded_runs import FULL_RUN, Seeded, seed_runs
from tests.served_app import ServedApp, served_app

RUNS = "/ui/in/default/runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededService:
    """Args: served: running. seeded: what project `default` holds; project `other` is empty."""

    served: ServedApp
    seeded: Seeded

    def client(self, *scopes: Scope) -> httpx.Client:
        """Return a browserless visitor who is signed in."""
        client = self.served.new_client(Origin=self.served.url)
        answer = client.post("/ui/sign-in", data={"token": self.served.token(*scopes)})
        assert answer.status_code == 303, answer.text
        return client


@contextmanager
def seeded_service(folder: Path) -> Iterator[SeededService]:
    """Yield a running service with `seed_runs` in it."""
    with (
        fresh_database("sqlite", folder=folder) as database,
        served_app(database, projects=("default", "other")) as served,
    ):
        with database.read() as tx:
            named = select(projects.c.id).where(projects.c.name == "default")
            project_id = tx.execute(named).scalar_one()
        yield SeededService(served=served, seeded=seed_runs(database, project_id=project_id))


def run_path(name: str = FULL_RUN, project: str = "default") -> str:
    """Return the path of the page of a run."""
    return f"/ui/in/{project}/runs/{quote(name, safe='')}"

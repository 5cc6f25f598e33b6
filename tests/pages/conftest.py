"""One Chromium a module; a machine without any skips, unless `CKPTGUARD_BROWSER=required` (`make test`)."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from playwright.sync_api import Error as PlaywrightError

from tests.databases import fresh_database
from tests.pages.browsing import running_browser
from tests.pages.seeded import SeededApp, seed
from tests.served_app import served_app


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield the browser.

    While it runs, an event loop runs in this thread (playwright, sync_api): no test of another module may
    meet it.
    """
    try:
        running = running_browser()
        found = running.__enter__()
    except PlaywrightError as error:
        if os.environ.get("CKPTGUARD_BROWSER") == "required":
            raise
        pytest.skip(f"no Chromium: {error.message.splitlines()[0]}")
    yield found
    running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededApp]:
    """Yield a running service over 1,000 runs (`tests/pages/seeded.py`); tests only look at it."""
    folder = tmp_path_factory.mktemp("seeded")
    with fresh_database("sqlite", folder=folder) as database:
        where = seed(database)
        with served_app(database, projects=()) as served:
            yield SeededApp(served=served, where=where)

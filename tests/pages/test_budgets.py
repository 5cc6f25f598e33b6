"""What a page may cost, in what does not depend on the machine: bytes, statements, plans, elements.

benchmarks/pages.py measures times.
"""

import html
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import Engine, event

from tests.pages.every_page import PAGES, shown_by
from tests.pages.seeded import SeededApp

MAX_VIEW_BYTES: Final = 300_000
MAX_STATEMENTS: Final = 40
MAX_ELEMENTS: Final = 6_000
LARGE: Final = "checkpoints|validations|verdicts|findings|check_results|events|file_results"

_ASKED_FOR: Final = re.compile(r'(?:href|src)="(/ui/static/[^"]+)"|data-(?:src|map)="(/ui/[^"]+)"')
_SCAN: Final = re.compile(rf"(?:SCAN|SEARCH) ({LARGE})\w*(?: AS \w+)?$")


@pytest.fixture(scope="module")
def client(seeded: SeededApp) -> httpx.Client:
    client = seeded.served.new_client(Origin=seeded.served.url)
    assert client.post("/ui/sign-in", data={"token": seeded.served.token()}).status_code == 303
    return client


@contextmanager
def statements_of_requests(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Collect what requests ask the database; scheduled work has threads of its own."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
        if threading.current_thread().name.startswith("AnyIO"):
            seen.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def bytes_of_view(client: httpx.Client, path: str) -> int:
    """Return what a browser with an empty cache is sent: the page, its files, the data that it fetches."""
    page = client.get(path)
    found = ("".join(groups) for groups in _ASKED_FOR.findall(page.text))
    asked_for = {html.unescape(address) for address in found}
    answers = [page, *(client.get(address) for address in sorted(asked_for))]
    assert {answer.status_code for answer in answers} == {200}, asked_for
    return sum(answer.num_bytes_downloaded for answer in answers)


@pytest.mark.parametrize("route", PAGES)
def test_a_first_view_is_small(client: httpx.Client, seeded: SeededApp, route: str) -> None:
    for shown in shown_by(route, seeded.where):
        assert bytes_of_view(client, shown.path) < MAX_VIEW_BYTES, shown.name


@pytest.mark.parametrize("route", PAGES)
def test_a_page_asks_the_database_little_and_reads_no_large_table_from_end_to_end(
    client: httpx.Client, seeded: SeededApp, route: str
) -> None:
    engine = seeded.served.services.database.engine
    for shown in shown_by(route, seeded.where):
        with statements_of_requests(engine) as seen:
            assert client.get(shown.path).status_code == 200
        assert len(seen) <= MAX_STATEMENTS, f"{shown.name}: {len(seen)} statements"
        assert [plan for one in seen for plan in scans(engine, *one)] == [], shown.name


def scans(engine: Engine, statement: str, parameters: Any) -> list[str]:  # noqa: ANN401 - the driver's
    """Return the steps of a statement's plan that read a large table without an index."""
    if not statement.lstrip().startswith(("SELECT", "WITH")):
        return []
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    if len(plan) == 1 and plan[0][-1].startswith("SEARCH"):  # the end of a table: `max(id)`
        return []
    return [f"{row[-1]}: {statement[:400]}" for row in plan if _SCAN.match(row[-1])]


@pytest.mark.parametrize("route", PAGES)
def test_a_page_has_few_elements(client: httpx.Client, seeded: SeededApp, route: str) -> None:
    for shown in shown_by(route, seeded.where):
        elements = len(re.findall(r"<[a-z]", client.get(shown.path).text))
        assert elements < MAX_ELEMENTS, f"{shown.name}: {elements} elements"

"""The audit in a browser: what is asked for stands in the address, and nothing is left out on the way."""

import csv
import io
import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import func, select

from ckptguard.model.service import EventKind, Scope
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories import windows
from ckptguard_api.repositories.events import record
from ckptguard_api.tables import tokens
from ckptguard_api.use_cases.tokens import revoke_token
from tests.databases import fresh_database
from tests.pages.browsing import visitor
from tests.pages.busy_project import FORMULA, OPERATOR, BusyProject, count_events, fill
from tests.pages.form_client import form_client
from tests.served_app import ServedApp, served_app

EVENTS = "/ui/in/default/events"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("events")
    with (
        fresh_database("sqlite", folder=folder) as database,
        served_app(database, projects=("default", "other")) as served,
    ):
        yield served


@pytest.fixture(scope="module")
def busy(served: ServedApp) -> BusyProject:
    busy = fill(served.services)
    with served.services.database.write() as tx:
        about = Subject(project_id=busy.project_id, checkpoint_id=busy.older)
        for number in range(120):
            record(tx, EventKind.CHECKPOINT_NOTED, actor=OPERATOR, about=about, data={"text": f"{number}"})
    return busy


pytestmark = pytest.mark.usefixtures("busy")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_filters_stand_in_the_address_and_survive_a_reload(
    browser: Browser, served: ServedApp, busy: BusyProject
) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(EVENTS)
        page.get_by_label("Kind").select_option("checkpoint.held")
        expect(page.locator("table.events tbody tr")).to_have_count(1)
        assert parse_qs(urlsplit(page.url).query)["kind"] == ["checkpoint.held"]
        page.reload()
        expect(page.get_by_label("Kind")).to_have_value("checkpoint.held")
        row = page.locator("table.events tbody tr")
        expect(row).to_have_count(1)
        row.locator("summary").click()
        expect(row.locator("pre")).to_contain_text('"hold": "pinned"')
        row.get_by_role("link", name="step 300").click()
        expect(page).to_have_url(f"{served.url}/ui/in/default/checkpoints/{busy.bad}")


def test_pages_go_to_the_end_and_miss_nothing(browser: Browser, served: ServedApp, busy: BusyProject) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(f"{EVENTS}?checkpoint={busy.older}&kind=checkpoint.noted")
        seen = page.locator("table.events summary").all_inner_texts()
        while page.get_by_role("link", name="Next page").count():
            page.get_by_role("link", name="Next page").click()
            page.wait_for_load_state("load")
            seen += page.locator("table.events summary").all_inner_texts()
    assert seen == [f"note: {number}" for number in reversed(range(120))]


def test_filters_work_without_script(browser: Browser, served: ServedApp, busy: BusyProject) -> None:
    with visitor(browser, served, java_script_enabled=False) as someone:
        page = someone.go(EVENTS)
        page.get_by_role("textbox", name="Checkpoint").fill(str(busy.bad))
        page.get_by_role("button", name="Show").click()
        expect(page.locator("table.events tbody tr")).to_have_count(2)


def test_who_did_it_is_a_filter(served: ServedApp) -> None:
    client = form_client(served)
    client.get(EVENTS)
    exactly = rows_of(client.get(f"{EVENTS}.csv", params={"actor": OPERATOR.name}).text)  # type: ignore[arg-type]
    assert {row["actor"].lstrip("'") for row in exactly} == {OPERATOR.name}
    assert rows_of(client.get(f"{EVENTS}.csv?actor=TOKEN:").text) == []
    assert len(rows_of(client.get(f"{EVENTS}.csv?actor=token:").text)) == len(exactly)


def test_a_file_has_all_that_the_filters_let_through_and_no_formula(
    served: ServedApp, busy: BusyProject
) -> None:
    client = form_client(served)
    rows = rows_of(client.get(f"{EVENTS}.csv").text)
    assert len(rows) > 120
    assert [int(row["id"]) for row in rows] == sorted((int(row["id"]) for row in rows), reverse=True)
    (restart,) = [row for row in rows if row["kind"] == "run.restarted"]
    assert json.loads(restart["data"])["detail"] == FORMULA
    assert restart["run"].startswith("\"'>")
    noted = rows_of(client.get(f"{EVENTS}.csv?kind=checkpoint.noted&checkpoint={busy.bad}").text)
    assert len(noted) == 1
    assert noted[0]["step"] == "300"


def test_a_rare_kind_far_back_is_found_page_by_page(
    served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 40)
    client = form_client(served)
    text = client.get(f"{EVENTS}?kind=run.restarted").text
    looked = 1
    while "Look further back" in text:
        following = text.partition("None of the last")[2].partition('href="')[2].partition('"')[0]
        text = client.get(following.replace("&amp;", "&")).text
        looked += 1
    assert looked > 2
    assert "failed early" in text


def test_what_belongs_to_no_project_is_for_those_who_see_all(served: ServedApp) -> None:
    everything = form_client(served).get(f"{EVENTS}?of=service&kind=token.created").text
    assert "was made" in everything
    one = form_client(served, Scope.READ, project="default")
    assert one.get(f"{EVENTS}?of=service").status_code == 403
    assert "the service itself" not in one.get(EVENTS).text


def test_another_project_shows_none_of_it(served: ServedApp, busy: BusyProject) -> None:
    client = form_client(served, project="other")
    assert "Nothing happened yet" not in client.get("/ui/in/other/events").text  # its own sign-in
    assert client.get(f"/ui/in/other/events?checkpoint={busy.bad}").text.count("No event matches") == 1
    assert client.get("/ui/in/other/events", params={"run": busy.run}).text.count("No run “") == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query", ["kind=nothing", "checkpoint=x", "checkpoint=0", "checkpoint=9223372036854775808", "cursor=x"]
)
def test_an_address_that_means_nothing_is_refused(served: ServedApp, query: str) -> None:
    answer = form_client(served).get(f"{EVENTS}?{query}")
    assert answer.status_code == 422
    assert "Unprocessable" in answer.text


def test_looking_changes_nothing(served: ServedApp) -> None:
    client = form_client(served)
    before = count_events(served.services)
    client.get(EVENTS)
    client.get(f"{EVENTS}.csv")
    assert count_events(served.services) == before


def test_a_filter_of_somebody_whose_token_ended_leads_to_signing_in(
    browser: Browser, served: ServedApp
) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(EVENTS)
        with served.services.database.read() as tx:
            own = tx.execute(select(func.max(tokens.c.id))).scalar_one()
        revoke_token(served.services, own, by=SERVICE, own_id=None)
        page.get_by_label("Kind").select_option("checkpoint.held")
        expect(page.get_by_label("Token")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_have_count(1)

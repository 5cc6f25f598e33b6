"""What holds for every page and every form, those too that are still to be written."""

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from playwright.sync_api import Browser
from pydantic import SecretStr

from ckptguard.model.service import Scope
from ckptguard_api.app import create_app
from ckptguard_api.database import Database
from ckptguard_api.pages.door import COOKIE
from ckptguard_api.pages.paths import ROOT, SIGN_IN, SIGN_OUT, STATIC, is_page
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from tests.databases import fresh_database
from tests.pages.browsing import visitor
from tests.pages.busy_project import HOSTILE, BusyProject, count_events, fill
from tests.pages.form_client import FormClient, form_client
from tests.served_app import ServedApp, served_app

PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
EVERYTHING = {"reason": "why", "what": "quarantined", "text": "note", "depth": "load", "token": "ckg_none"}
"""Fields of all forms."""
CONSTANTS = {"marks.html": 1}
"""Uses of `safe` in templates, each of markup that stands in the template itself."""
ONLY_THE_SESSION = frozenset({SIGN_IN, SIGN_OUT})
"""Forms that change nothing but who is signed in; tests/pages/test_sign_in.py has them."""


def routes(app: FastAPI, method: str) -> list[str]:
    """Return the paths of all pages that take this method."""
    found: list[str] = []
    for route in app.routes:
        # Newer versions of FastAPI keep a router that was included as it is.
        inner = getattr(route, "original_router", None)
        known = [one for one in (inner.routes if inner is not None else [route]) if isinstance(one, APIRoute)]
        found += [one.path for one in known if method in (one.methods or ()) and is_page(one.path)]
    assert len(found) > 3, "the routes were not found"
    return found


def _app() -> FastAPI:
    return create_app(Services(database=Database("sqlite://"), settings=Settings()))


FORMS = sorted(set(routes(_app(), "POST")) - ONLY_THE_SESSION)
PAGES = [path for path in routes(_app(), "GET") if not path.startswith(STATIC)]
ENDLESS = [path for path in PAGES if path.endswith("/stream")]
ENDING = [path for path in PAGES if path not in ENDLESS]


def patient(database: Database, folder: Path) -> Settings:
    """Return settings under which what runs goes on running, however slow the machine is."""
    url = database.engine.url.render_as_string(hide_password=False)
    return Settings(database_url=SecretStr(url), data_dir=folder / "unused", lease_s=3600.0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("security")
    with (
        fresh_database("sqlite", folder=folder) as database,
        served_app(database, settings=patient(database, folder), projects=("default", "other")) as served,
    ):
        yield served


@pytest.fixture(scope="module")
def busy(served: ServedApp) -> BusyProject:
    return fill(served.services)


@pytest.fixture(scope="module")
def operator(served: ServedApp) -> FormClient:
    return form_client(served)


@pytest.fixture(scope="module")
def reader(served: ServedApp) -> FormClient:
    return form_client(served, Scope.READ)


def filled(path: str, busy: BusyProject) -> str:
    """Return an address; a route with another parameter must say here what stands for it."""
    known: Mapping[str, object] = {
        "project": "default",
        "run": busy.run,
        "checkpoint_id": busy.bad,
        "validation_id": busy.finished,
        "code": "crc_mismatch",
    }
    return PARAMETER.sub(lambda match: quote(str(known[match[1]]), safe=""), path)


def test_there_are_forms_and_pages() -> None:
    assert len(FORMS) >= 5
    assert len(PAGES) >= 8


@pytest.mark.parametrize("path", FORMS)
def test_no_form_is_taken_without_its_secret_from_elsewhere_or_from_those_who_may_only_look(
    served: ServedApp, busy: BusyProject, operator: FormClient, reader: FormClient, path: str
) -> None:
    address = filled(path, busy)
    before = count_events(served.services)
    nobody = served.new_client(Origin=served.url).post(address, data=EVERYTHING)
    assert (nobody.status_code, nobody.headers["location"]) == (303, SIGN_IN)
    good = {"csrf": operator.csrf, **EVERYTHING}
    for form in (EVERYTHING, good | {"csrf": ""}, good | {"csrf": reader.csrf}):
        assert operator.http.post(address, data=form).status_code == 403
    for origin in ("https://evil.example", "null", "", served.url.replace("http", "https") + ".evil.example"):
        assert operator.http.post(address, data=good, headers={"Origin": origin}).status_code == 403
    assert without_origin(operator, address, good).status_code == 403
    assert reader.post(address, **EVERYTHING).status_code == 403
    assert count_events(served.services) == before


def without_origin(client: FormClient, address: str, form: Mapping[str, str]) -> httpx.Response:
    request = client.http.build_request("POST", address, data=dict(form))
    del request.headers["origin"]
    return client.http.send(request)


@pytest.mark.parametrize("path", FORMS)
def test_no_form_reaches_into_another_project(served: ServedApp, busy: BusyProject, path: str) -> None:
    before = count_events(served.services)
    stranger = form_client(served, project="other")
    address = filled(path, busy)
    signed_in = count_events(served.services) - before
    assert stranger.post(address, **EVERYTHING).status_code == 404
    inside = address.replace("/in/default/", "/in/other/")
    assert stranger.post(inside, **EVERYTHING).status_code == 404
    assert count_events(served.services) == before + signed_in


@pytest.mark.parametrize("path", FORMS)
def test_nothing_is_changed_by_following_a_link(
    served: ServedApp, busy: BusyProject, operator: FormClient, path: str
) -> None:
    before = count_events(served.services)
    assert operator.get(filled(path, busy)).status_code in (404, 405)
    assert count_events(served.services) == before


@pytest.mark.parametrize("path", ENDING)
def test_every_page_forbids_what_it_does_not_need(
    served: ServedApp, busy: BusyProject, operator: FormClient, path: str
) -> None:
    for address in (filled(path, busy), filled(path, busy) + "/nowhere"):
        for client in (operator.http, served.new_client()):
            expect_strict(client.get(address))


@pytest.mark.parametrize("path", ENDLESS)
def test_a_stream_is_for_who_is_signed_in(
    served: ServedApp, busy: BusyProject, operator: FormClient, path: str
) -> None:
    address = filled(path, busy)
    assert served.new_client().get(address).headers["location"].startswith(SIGN_IN)
    with operator.http.stream("GET", address) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        expect_strict(answer)


def expect_strict(answer: httpx.Response) -> None:
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert "*" not in policy
    assert {"frame-ancestors 'none'", "base-uri 'none'"} <= {one.strip() for one in policy.split(";")}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ENDING)
def test_a_page_shows_no_token(busy: BusyProject, operator: FormClient, path: str) -> None:
    text = operator.get(filled(path, busy)).text
    assert operator.http.cookies[COOKIE] not in text
    assert not re.search(r"ckg_[A-Za-z0-9_-]{20}", text)


def test_who_may_only_look_is_shown_no_form_that_acts(busy: BusyProject, reader: FormClient) -> None:
    for path in ENDING:
        forms = re.findall(r'<form method="post" action="([^"]*)"', reader.get(filled(path, busy)).text)
        assert set(forms) <= ONLY_THE_SESSION, path


def test_hostile_names_run_nothing_on_any_page(
    browser: Browser, served: ServedApp, busy: BusyProject
) -> None:
    """The window fails on every dialog, on every word of the console, and on every request elsewhere."""
    with visitor(browser, served) as someone:
        for path in (path for path in ENDING if not path.endswith((".csv", ".json", ".part"))):
            page = someone.go(filled(path, busy))
            assert page.evaluate("document.querySelectorAll('img, iframe, object, base').length") == 0, path
            assert "\u202e" not in page.content(), f"{path}: a name turns text around"
        page = someone.go(f"{ROOT}/in/default/validations/{busy.running}")
        assert page.get_by_text(HOSTILE.replace("\u202e", "\\u202e")).count() > 0
        assert "\u202e" not in page.content()


@pytest.mark.parametrize("path", [path for path in ENDING if path.endswith(".csv")])
def test_no_cell_of_a_file_is_a_formula(busy: BusyProject, operator: FormClient, path: str) -> None:
    answer = operator.get(filled(path, busy))
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert not re.search(r'(^|,)"?[ ]*[=+@\t\r-](?![0-9])', answer.text, re.MULTILINE)


class _Markup(HTMLParser):
    """Collects what a strict policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given):
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            if name == "style" or name.startswith(("on", "hx-on")):
                self.faults.append(f"{name} of <{tag}>")
            if value is not None and value.strip().lower().startswith(("javascript:", "js:")):
                self.faults.append(f"{name} of <{tag}> is a script")


def _texts(folder: str, ending: str) -> list[tuple[str, str]]:
    there = (files("ckptguard_api.pages") / folder).iterdir()
    found = [(one.name, one.read_text()) for one in there if one.name.endswith(ending)]
    assert found
    return found


@pytest.mark.parametrize(("name", "text"), _texts("templates", ".html"))
def test_no_template_has_script_or_style_of_its_own(name: str, text: str) -> None:
    markup = _Markup()
    # What Jinja says in tags is no markup; a tag may stand between the parts of a condition.
    markup.feed(re.sub(r"\{[%#].*?[%#]\}", "", text, flags=re.DOTALL))
    assert markup.faults == [], name
    safe = re.findall(r"[^{}]*\|\s*safe\b|autoescape", text)
    assert len(safe) == CONSTANTS.get(name, 0), f"{name}: everything is escaped: {safe}"


@pytest.mark.parametrize(("name", "text"), _texts("static", ".js"))
def test_no_script_makes_markup_of_text(name: str, text: str) -> None:
    made = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
    assert not re.search(r"set(?:Timeout|Interval)\(\s*['\"`]", text), name
    # The word is also how htmx calls the way in which a part of a page is replaced.
    assert [one for one in made if one != "innerHTML"] == [], name
    assert re.findall(r".*innerHTML.*", text) == re.findall(r'.*swapStyle: "innerHTML".*', text), name

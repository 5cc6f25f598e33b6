"""Signing in and out, and who is not let in."""

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import select

from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.pages.door import COOKIE
from ckptguard_api.tables import tokens
from ckptguard_api.use_cases.tokens import revoke_token
from tests.databases import fresh_database
from tests.pages.browsing import visitor
from tests.served_app import ServedApp, served_app


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("pages")
    with (
        fresh_database("sqlite", folder=folder) as database,
        served_app(database, projects=("default", "other")) as served,
    ):
        yield served


def browserless(served: ServedApp) -> httpx.Client:
    return served.new_client(Origin=served.url)


def signed_in(served: ServedApp, token: str, **form: str) -> httpx.Client:
    client = browserless(served)
    assert client.post("/ui/sign-in", data={"token": token, **form}).status_code == 303
    return client


def csrf_of(client: httpx.Client) -> str:
    page = client.get("/ui/projects").text
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def test_a_person_signs_in_looks_and_signs_out(browser: Browser, served: ServedApp) -> None:
    with visitor(browser, served) as someone:
        expect(someone.page.get_by_role("heading", name="Runs")).to_be_visible()
        (cookie,) = someone.page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
        someone.page.get_by_role("button", name="Sign out").click()
        expect(someone.page.get_by_label("Token")).to_be_visible()
        assert someone.page.context.cookies() == []
        someone.go("/ui/in/default/runs")
        expect(someone.page.get_by_label("Token")).to_be_visible()


def test_the_browser_never_holds_the_typed_token_and_its_own_ends_at_sign_out(served: ServedApp) -> None:
    token = served.token()
    client = signed_in(served, token)
    own = client.cookies[COOKIE]
    assert own != token
    assert client.post("/ui/sign-out", data={"csrf": csrf_of(client)}).status_code == 303
    again = browserless(served)
    again.cookies.set(COOKIE, own)
    assert again.get("/ui/projects").headers["location"].startswith("/ui/sign-in")
    assert served.client().get("/v1/runs").status_code == 200


def test_the_end_of_a_token_ends_its_browsers(served: ServedApp) -> None:
    token = served.token()
    client = signed_in(served, token)
    with served.services.database.read() as tx:
        row = tx.execute(select(tokens).where(tokens.c.hint == token[:8], tokens.c.parent_id.is_(None))).one()
    revoke_token(served.services, row.id, by=SERVICE, own_id=None)
    assert client.get("/ui/projects").status_code == 303


def test_a_browsers_token_opens_no_other_browser(served: ServedApp) -> None:
    own = signed_in(served, served.token()).cookies[COOKIE]
    assert browserless(served).post("/ui/sign-in", data={"token": own}).status_code == 403


def test_only_look_takes_the_right_to_change(served: ServedApp) -> None:
    client = signed_in(served, served.token(), read_only="on")
    assert "read only" in client.get("/ui/projects").text


@pytest.mark.parametrize("scope", [Scope.WORK, Scope.REGISTER])
def test_a_token_that_may_not_read_is_told_so(served: ServedApp, scope: Scope) -> None:
    answer = browserless(served).post("/ui/sign-in", data={"token": served.token(scope)})
    assert answer.status_code == 403
    assert "may not read" in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ""])
def test_a_form_from_elsewhere_is_refused(served: ServedApp, origin: str) -> None:
    client = signed_in(served, served.token())
    data = {"csrf": csrf_of(client)}
    assert client.post("/ui/sign-out", data=data, headers={"Origin": origin}).status_code == 403
    assert client.get("/ui/projects").status_code == 200


def test_a_form_without_the_pages_secret_is_refused(served: ServedApp) -> None:
    client = signed_in(served, served.token())
    other = csrf_of(signed_in(served, served.token()))
    for form in ({}, {"csrf": ""}, {"csrf": other}):
        assert client.post("/ui/sign-out", data=form).status_code == 403
    assert client.get("/ui/projects").status_code == 200


def test_a_token_of_one_project_sees_no_other(served: ServedApp) -> None:
    client = signed_in(served, served.token(Scope.READ, project="other"))
    assert client.get("/ui").headers["location"] == "/ui/in/other/runs"
    assert client.get("/ui/in/default/runs").status_code == 404
    assert client.get("/ui/in/nowhere/runs").status_code == 404


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "https://evil.example/ui", "/\\evil.example", "/ui/%5c%5cevil", "/v1/runs", "", "ui"],
)
def test_signing_in_leads_nowhere_else(served: ServedApp, target: str) -> None:
    client = browserless(served)
    answer = client.post("/ui/sign-in", data={"token": served.token(), "next": target})
    assert answer.headers["location"] == "/ui"


def test_signing_in_leads_back_to_where_one_was(served: ServedApp) -> None:
    client = browserless(served)
    asked = client.get("/ui/in/default/events?kind=run.created")
    page = client.get(asked.headers["location"])
    assert 'value="/ui/in/default/events?kind=run.created"' in page.text


def test_a_link_from_elsewhere_finds_who_is_signed_in(browser: Browser, served: ServedApp) -> None:
    """The cookie does not go along with it, so our own page asks once more."""
    with visitor(browser, served) as someone:
        page = someone.page
        page.route(
            "https://chat.example/",
            lambda route: route.fulfill(
                content_type="text/html", body=f'<a href="{served.url}/ui/projects">look</a>'
            ),
        )
        page.goto("https://chat.example/")
        page.get_by_role("link", name="look").click()
        expect(page.get_by_role("heading", name="Projects")).to_be_visible()
        someone.requests.remove("https://chat.example/")


def test_browsers_tokens_are_not_listed(served: ServedApp) -> None:
    before = len(served.client().get("/v1/tokens?limit=500").json()["items"])
    signed_in(served, served.token())
    assert len(served.client().get("/v1/tokens?limit=500").json()["items"]) == before + 2

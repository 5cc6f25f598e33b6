"""The page of all runs: what needs a person first, filters in the address, names that are only names."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from ckptguard.model.service import Scope
from ckptguard_api.domain.attention import Attention
from tests.pages.axe import grave_faults
from tests.pages.browsing import PHONE, visitor
from tests.pages.run_pages import RUNS, SeededService, run_path, seeded_service
from tests.pages.seeded_runs import FULL_RUN, HOSTILE


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededService]:
    with seeded_service(tmp_path_factory.mktemp("runs")) as seeded:
        yield seeded


@pytest.fixture(scope="module")
def client(service: SeededService) -> httpx.Client:
    return service.client(Scope.READ)


def shown(page: Page) -> list[str]:
    return page.locator("table.runs tbody th a").all_inner_texts()


def test_what_needs_a_person_comes_first_and_is_said_in_words(
    browser: Browser, service: SeededService
) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = someone.go(RUNS)
        names = shown(page)
        assert names[:4] == ["restarts-fail", "below-policy", "never-valid", FULL_RUN]
        assert names[-1] == "over"
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=FULL_RUN, exact=True))
        expect(row).to_contain_text("newest INVALID")
        expect(row).to_contain_text("step 5,100 is INVALID")
        expect(row).to_contain_text("a launcher goes back to step 4,900")
        expect(row).to_contain_text("GPU-h")
        expect(row).to_contain_text(re.compile(r"\$7\d,\d{3}"))
        expect(row.get_by_role("img")).to_have_attribute(
            "aria-label", "Last 40 checkpoints: 34 VALID loaded, 2 VALID content, 1 INVALID, "
            "1 announced, never came, 1 validation running, 1 validation queued",
        )  # fmt: skip
        assert grave_faults(page) == []


def test_filters_change_the_list_without_a_reload_and_stand_in_the_address(
    browser: Browser, service: SeededService
) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = someone.go(RUNS)
        page.get_by_label("Needs").select_option("person")
        expect(page.locator("table.runs tbody tr")).to_have_count(11)
        page.get_by_label("Name has").press_sequentially("never")
        expect(page.locator("table.runs tbody tr")).to_have_count(2)
        page.wait_for_url("**q=never**")
        assert shown(page) == ["never-valid", "never-came"]
        page.reload()
        assert shown(page) == ["never-valid", "never-came"]
        expect(page.get_by_label("Needs")).to_have_value("person")
        page.go_back()
        page.wait_for_url(lambda url: "q=never" not in url)
        expect(page.locator("table.runs tbody tr")).not_to_have_count(2)


def test_without_script_the_page_works(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ, java_script_enabled=False) as someone:
        page = someone.go(RUNS)
        page.get_by_label("Name has").fill("held")
        page.get_by_role("button", name="Show").click()
        assert shown(page) == ["held-back"]
        page.get_by_role("link", name="held-back").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Run held-back")


def test_hostile_names_are_shown_and_lead_to_their_runs(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = someone.go(RUNS)
        assert page.get_by_text("\\u202egnp").count()
        assert page.locator("main script, main img, main [onmouseover]").count() == 0
        for name in HOSTILE:
            answer = someone.page.request.get(service.served.url + run_path(name))
            assert answer.status == 200, name
        links = page.locator("table.runs tbody th a")
        addresses = {links.nth(place).get_attribute("href") for place in range(links.count())}
        assert {run_path(name) for name in HOSTILE} <= addresses


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_aside(
    browser: Browser, service: SeededService, scheme: str
) -> None:
    with visitor(browser, service.served, Scope.READ, size=PHONE, scheme=scheme) as someone:  # type: ignore[arg-type]
        page = someone.go(RUNS)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert grave_faults(page) == []


def test_the_keyboard_reaches_a_run(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = someone.go(RUNS)
        page.get_by_role("button", name="Show").focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/restarts-fail")


def test_an_empty_project_names_the_command_to_run_next(service: SeededService, client: httpx.Client) -> None:
    page = client.get("/ui/in/other/runs").text
    assert "No run yet" in page
    assert f"export CKPTGUARD_URL={service.served.url}\n" in page
    assert "export CKPTGUARD_PROJECT=other\n" in page
    assert "ckptguard register /checkpoints/run-7/step-1200 --run run-7 --step 1200" in page


def test_a_host_that_was_made_up_stays_a_word_of_the_command(client: httpx.Client) -> None:
    page = client.get("/ui/in/other/runs", headers={"Host": "a;rm -rf x"}).text
    assert "CKPTGUARD_URL=http://a;rm" not in page


def test_nothing_that_matches_is_said_to_be_nothing(client: httpx.Client) -> None:
    page = client.get(RUNS, params={"q": "<i>no such"}).text
    assert "No run matches" in page
    assert "&lt;i&gt;no such" in page
    assert "<i>no" not in page


@pytest.mark.parametrize("attention", Attention)
def test_each_reason_can_be_asked_for(client: httpx.Client, attention: Attention) -> None:
    page = client.get(RUNS, params={"attention": attention.value}).text
    assert f'<option value="{attention}" selected>' in page
    assert '<table class="stacked runs">' in page


def test_a_filter_that_means_nothing_is_told(client: httpx.Client) -> None:
    answer = client.get(RUNS, params={"attention": "nonsense"})
    assert answer.status_code == 422
    assert "/attention: &#39;nonsense&#39; is none of restarts_failing" in answer.text
    assert client.get(RUNS, params={"page": "0"}).status_code == 422
    assert client.get(RUNS, params={"page": "9999"}).status_code == 200


def test_htmx_gets_the_list_alone(client: httpx.Client) -> None:
    part = client.get(RUNS, headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert "table" in part

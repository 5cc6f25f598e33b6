"""What holds on every page: for eyes, ears and fingers, at a desk and on a phone, by day and by night."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.databases import fresh_database
from tests.pages.axe import grave_faults
from tests.pages.browsing import DESKTOP, PHONE, Visitor, visitor
from tests.pages.every_page import EMPTY_PAGES, PAGES, Shown, page_routes, shown_by
from tests.pages.seeded import SeededApp
from tests.served_app import ServedApp, served_app

_MAX_TABS: Final = 60
_FURTHER_TABS: Final = 10
"""Beyond the last control lies the browser itself, and it stops at what scrolls."""
_CONTROLS: Final = """() => {
  window.controls = [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
    .filter(one => !one.disabled && !one.matches('[type=radio]:not(:checked)'))
    .filter(one => one.checkVisibility({visibilityProperty: true}));
  return {
    count: window.controls.length,
    unreachable: window.controls.filter(one => one.tabIndex !== 0).map(one => one.outerHTML.slice(0, 160)),
  };
}"""
_PAUSE: Final = "() => document.querySelector('[data-live-pause]')?.click()"  # what is counted must stay
_FOCUSED: Final = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return {
    index: window.controls.indexOf(one), html: one.outerHTML.slice(0, 160),
    seen: outlined || style.boxShadow !== 'none' || style.textDecorationLine !== 'none',
  };
}"""
_SIDEWAYS: Final = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll('body *')].filter(one => {
    for (let up = one.parentElement; up; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== 'visible' && up !== document.body) return false;
    return one.getBoundingClientRect().right > width + 1;
  }).map(one => one.outerHTML.slice(0, 120));
}"""


@pytest.fixture(scope="module")
def operator(browser: Browser, seeded: SeededApp) -> Iterator[Visitor]:
    with visitor(browser, seeded.served) as someone:
        yield someone


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("empty")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        yield served


@pytest.fixture(scope="module")
def newcomer(browser: Browser, empty: ServedApp) -> Iterator[Visitor]:
    with visitor(browser, empty) as someone:
        yield someone


def opened(someone: Visitor, shown: Shown) -> Page:
    page = someone.page
    page.set_viewport_size(_size(DESKTOP))
    page.emulate_media(color_scheme="light")
    response = page.goto(someone.url + shown.path, wait_until="load")
    assert response is not None
    assert response.status == 200, f"{shown.path}: {response.status}"
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return page


def _size(size: tuple[int, int]) -> Any:  # noqa: ANN401 - playwright's
    return {"width": size[0], "height": size[1]}


def expect_usable(someone: Visitor, shown: Shown) -> None:
    page = opened(someone, shown)
    assert page.locator("h1").count() == 1
    assert page.title().strip() not in ("", "ckptguard")
    assert grave_faults(page) == [], f"{shown.name}: at a desk, by day"
    page.set_viewport_size(_size(PHONE))
    with suppress(PlaywrightTimeoutError):  # pictures are drawn again
        page.wait_for_function(f"() => ({_SIDEWAYS})().length === 0", timeout=2000)
    assert page.evaluate(_SIDEWAYS) == [], f"{shown.name}: scrolls sideways on a phone"
    page.emulate_media(color_scheme="dark")
    assert grave_faults(page) == [], f"{shown.name}: on a phone, by night"
    someone.expect_no_faults()


def expect_keyboard(someone: Visitor, shown: Shown) -> None:
    page = opened(someone, shown)
    page.evaluate(_PAUSE)
    controls = page.evaluate(_CONTROLS)
    assert controls["unreachable"] == [], "Tab does not reach these"
    wanted, reached = min(controls["count"], _MAX_TABS), set[int]()
    for _ in range(wanted + _FURTHER_TABS):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused["index"] >= 0:
            assert focused["seen"], f"nobody sees where the focus is: {focused['html']}"
            reached.add(focused["index"])
        if len(reached) == wanted:
            return
    pytest.fail(f"Tab reaches {len(reached)} of {controls['count']}")


def test_every_route_is_a_page_or_said_to_be_none(seeded: SeededApp) -> None:
    assert page_routes(seeded.served.app) == PAGES.keys()


@pytest.mark.parametrize("route", PAGES)
def test_a_page_is_usable_by_day_by_night_and_on_a_phone(
    operator: Visitor, seeded: SeededApp, route: str
) -> None:
    for shown in shown_by(route, seeded.where):
        expect_usable(operator, shown)


@pytest.mark.parametrize("route", PAGES)
def test_a_page_is_usable_by_keyboard(operator: Visitor, seeded: SeededApp, route: str) -> None:
    expect_keyboard(operator, shown_by(route, seeded.where)[0])


@pytest.mark.parametrize("shown", EMPTY_PAGES, ids=lambda shown: shown.name)
def test_an_empty_page_is_usable(newcomer: Visitor, shown: Shown) -> None:
    expect_usable(newcomer, shown)


def test_each_page_has_a_title_of_its_own(seeded: SeededApp) -> None:
    client = seeded.served.new_client(Origin=seeded.served.url)
    assert client.post("/ui/sign-in", data={"token": seeded.served.token()}).status_code == 303
    titles: dict[str, list[str]] = {}
    for shown in (one for route in PAGES for one in shown_by(route, seeded.where)):
        title = client.get(shown.path).text.partition("<title>")[2].partition("</title>")[0]
        titles.setdefault(title, []).append(shown.path)
    assert [paths for paths in titles.values() if len(paths) > 1] == []


def test_a_live_page_that_is_fetched_again_leaves_the_focus_where_it_is(operator: Visitor) -> None:
    page = operator.go("/ui/in/default/workers")
    expect(page.locator("[data-live-is=live]")).to_be_visible()
    link = page.locator("[data-live-refresh] a").nth(3)
    href = link.get_attribute("href")
    link.focus()
    page.evaluate(_PAUSE)
    with page.expect_response(lambda answer: answer.url.endswith("/workers")):
        page.evaluate(_PAUSE)  # goes on, and fetches at once
    page.wait_for_function("(old) => !old.isConnected", arg=link.element_handle())
    assert page.evaluate("() => document.activeElement.getAttribute('href')") == href


def test_enter_skips_to_the_content_and_follows_a_link(operator: Visitor) -> None:
    page = operator.go("/ui/in/default/runs")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("link", name="Workers", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Workers")

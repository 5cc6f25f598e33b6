"""What holds on every page: for eyes, ears and fingers, at a desk and on a phone, by day and by night."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.databases import fresh_database
from tests.pages.axe import grave_faults
from tests.pages.browsing import DESKTOP, PHONE, Visitor, visitor
from tests.pages.every_page import EMPTY_PAGES, PAGES, Shown, page_routes, shown_by
from tests.pages.seeded import SeededApp
from tests.served_app import ServedApp, served_app

_MAX_TABS: Final = 60
_CONTROLS: Final = """() => [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
  .filter(one => !one.disabled && one.checkVisibility({visibilityProperty: true}))"""
_UNREACHABLE: Final = (
    f"() => ({_CONTROLS})().filter(one => one.tabIndex !== 0).map(one => one.outerHTML.slice(0, 160))"
)
_COUNT: Final = f"() => ({_CONTROLS})().length"
_FOCUSED: Final = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
  return {
    tag: one.tagName, html: one.outerHTML.slice(0, 160),
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
    assert grave_faults(page) == [], f"{shown.name}: by day"
    page.emulate_media(color_scheme="dark")
    assert grave_faults(page, rules=("color-contrast",)) == [], f"{shown.name}: by night"
    page.set_viewport_size(_size(PHONE))
    assert page.evaluate(_SIDEWAYS) == [], f"{shown.name}: scrolls sideways on a phone"
    assert grave_faults(page) == [], f"{shown.name}: on a phone, by night"
    page.emulate_media(color_scheme="light")
    assert grave_faults(page, rules=("color-contrast",)) == [], f"{shown.name}: on a phone, by day"
    someone.expect_no_faults()


def expect_keyboard(someone: Visitor, shown: Shown) -> None:
    page = opened(someone, shown)
    assert page.evaluate(_UNREACHABLE) == [], "Tab does not reach these"
    page.evaluate("() => document.activeElement.blur()")
    reached: set[str] = set()
    controls = page.evaluate(_COUNT)
    for _ in range(min(controls, _MAX_TABS)):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        assert focused["tag"] != "BODY", f"Tab ends after {len(reached)} of {controls}"
        assert focused["seen"], f"nobody sees where the focus is: {focused['html']}"
        reached.add(focused["html"])
    assert reached, "there are controls"


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


def test_each_page_has_a_title_of_its_own(operator: Visitor, seeded: SeededApp) -> None:
    titles: dict[str, list[str]] = {}
    for shown in (one for route in PAGES for one in shown_by(route, seeded.where)):
        titles.setdefault(opened(operator, shown).title(), []).append(shown.name)
    assert [names for names in titles.values() if len(names) > 1] == []


def test_enter_skips_to_the_content_and_follows_a_link(operator: Visitor) -> None:
    page = operator.go("/ui/in/default/runs")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.get_by_role("link", name="Workers", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Workers")

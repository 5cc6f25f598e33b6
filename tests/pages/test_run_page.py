"""The page of a run: what a failure costs, the timeline, the checkpoints, their CSV."""

import csv
import io
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from ckptguard.model.service import Scope
from ckptguard_api.domain.marks import Mark
from ckptguard_api.domain.paging import DEFAULT_LIMIT
from ckptguard_api.pages import checkpoint_csv
from ckptguard_api.use_cases.history import list_checkpoints
from tests.pages.axe import grave_faults
from tests.pages.browsing import PHONE, visitor
from tests.pages.run_pages import SeededService, run_path, seeded_service
from tests.pages.seeded_runs import FULL_RUN, HOSTILE

NUM_SAVES = 69
CSV = f"{run_path()}/checkpoints.csv"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededService]:
    with seeded_service(tmp_path_factory.mktemp("run")) as seeded:
        yield seeded


@pytest.fixture(scope="module")
def client(service: SeededService) -> httpx.Client:
    return service.client(Scope.READ)


def opened(page: Page) -> Page:
    page.locator("#timeline[data-ready]").wait_for()
    return page


def steps(page: str) -> list[int]:
    found = re.findall(r'data-label="Step">.*?>([\d,]+)</a>', page)
    return [int(step.replace(",", "")) for step in found]


def listed(client: httpx.Client, **filters: str) -> list[int]:
    """Return the steps of every page."""
    found, address = [], str(httpx.URL(run_path(), params=filters))
    while True:
        page = client.get(address, headers={"HX-Request": "true"})
        assert page.status_code == 200, page.text
        found += steps(page.text)
        following = re.search(r'href="([^"]*)" rel="next"', page.text)
        if following is None:
            return found
        address = following[1].replace("&amp;", "&")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# ---- what a failure costs --------------------------------------------------------------------------


def test_the_box_says_what_a_launcher_gets_and_what_is_lost(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        box = page.get_by_role("region", name="If it failed now")
        expect(box).to_contain_text(re.compile(r"3 h 0\d min of work lost: \$7\d,\d{3}"))
        expect(box).to_contain_text("step 4,900")
        expect(box).to_contain_text(re.compile(r"Lost steps\s*400"))
        expect(box).to_contain_text(re.compile(r"2\d,\d{3}\.\d GPU-hours \(8,000 GPUs\)"))
        passed = box.locator("ul.passed li").all_inner_texts()
        assert [one.split(" ")[1] for one in passed] == ["5,300", "5,200", "5,150", "5,100", "5,000"]
        assert "invalid crc_mismatch" in passed[3]
        link = box.get_by_role("link", name="step 4,900")
        expect(link).to_have_attribute("href", f"/ui/in/default/checkpoints/{service.seeded.target_id}")
        assert grave_faults(page) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("never-valid", "Nothing to resume from"),
        ("below-policy", "Only a lower assurance"),
        ("empty", "Everything since the start"),
        ("healthy", "of work lost"),
    ],
)
def test_each_answer_to_a_launcher_has_its_words(client: httpx.Client, name: str, said: str) -> None:
    assert said in client.get(run_path(name)).text


def test_a_run_without_checkpoints_names_the_command_to_run_next(client: httpx.Client) -> None:
    page = client.get(run_path("empty")).text
    assert "No checkpoint yet" in page
    assert "ckptguard register /checkpoints/step-1200 --run empty --step 1200" in page
    assert 'id="timeline"' not in page


def test_a_hostile_name_is_one_word_of_every_command(client: httpx.Client) -> None:
    page = client.get(run_path("'; DROP TABLE runs; --")).text
    assert "--run &#39;&#39;&#34;&#39;&#34;&#39;; DROP TABLE runs; --&#39;" in page


# ---- timeline ------------------------------------------------------------------------------------------


def test_the_timeline_is_drawn_and_the_keyboard_reads_it_out(
    browser: Browser, service: SeededService
) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        assert page.locator("#timeline").get_attribute("data-ready") == str(NUM_SAVES)
        assert page.locator(".plot canvas").count() == 3
        plot = page.get_by_role("slider", name="Checkpoints of the run")
        plot.focus()
        page.keyboard.press("Home")
        expect(page.locator("#readout")).to_contain_text("step 100 · VALID loaded · branch 0 · saved 20")
        for _ in range(16):
            page.keyboard.press("ArrowRight")
        expect(page.locator("#readout")).to_contain_text("step 1,700 · INVALID")
        assert (plot.get_attribute("aria-valuetext") or "").startswith("step 1,700 · INVALID")
        page.keyboard.press("End")
        expect(page.locator("#readout")).to_contain_text("step 5,300 · validation queued")
        page.keyboard.press("Enter")
        page.wait_for_url("**/checkpoints/*")


def test_hovering_reads_out_and_a_click_opens(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        page.get_by_role("slider").focus()  # scrolls it into view
        page.keyboard.press("End")
        ring = page.locator(".plot-focus").bounding_box()
        assert ring is not None
        page.keyboard.press("Home")
        page.mouse.move(ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2)
        expect(page.locator("#readout")).to_contain_text("step 5,300")
        page.mouse.down()
        page.mouse.up()
        page.wait_for_url("**/checkpoints/*")


def test_over_steps_branches_lie_above_each_other(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        page.get_by_label("over steps").check()
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        below = page.locator(".plot-focus").bounding_box()
        page.keyboard.press("Home")
        above = page.locator(".plot-focus").bounding_box()
        assert below is not None
        assert above is not None
        assert below["y"] < above["y"]


def test_dragging_zooms_and_opens_nothing(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        page.get_by_role("slider").focus()
        before = page.locator(".plot-focus").bounding_box()
        assert before is not None
        over = page.locator("#plot-marks .u-over").bounding_box()
        assert over is not None
        page.mouse.move(over["x"] + 0.5 * over["width"], over["y"] + 40)
        page.mouse.down()
        page.mouse.move(over["x"] + over["width"] - 1, over["y"] + 40, steps=4)
        page.mouse.up()
        expect(page).to_have_url(service.served.url + run_path())
        page.wait_for_function(
            "(before) => document.querySelector('.plot-focus').getBoundingClientRect().x !== before",
            arg=before["x"],
        )


def test_a_timeline_that_cannot_be_loaded_is_said_to_be_missing(
    browser: Browser, service: SeededService
) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        someone.page.route("**/timeline.json", lambda route: route.fulfill(status=503, body="{}"))
        page = someone.go(run_path())
        expect(page.locator("#timeline [role=alert]")).to_contain_text("could not be loaded (status 503)")
        someone.faults.clear()  # the browser complains of the 503 itself


def test_every_mark_has_one_shape_everywhere() -> None:
    pages = files("ckptguard_api.pages")
    symbols = set(
        re.findall(r"^  \('([a-z-]+)',", (pages / "templates" / "marks.html").read_text(), re.MULTILINE)
    )
    script = (pages / "static" / "run.js").read_text()
    shapes = script.partition("const SHAPES = {")[2].partition("  };")[0]
    drawn = set(re.findall(r'^    "?([a-z-]+)"?: \(ctx\)', shapes, re.MULTILINE))
    layers = set(json.loads(re.search(r"const LAYERS = (\[.*?\]);", script)[1]))  # type: ignore[index]
    marks = {mark.value for mark in Mark}
    assert symbols == marks | {"held"}
    assert (drawn, layers) == (marks, marks)


# ---- checkpoints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"verdict": "INVALID"}, [5100, 1700]),
        ({"verdict": "none"}, [5300, 5200, 5150]),
        ({"code": "crc_mismatch"}, [5100]),
        ({"assurance": "content"}, [4000, 3000, 2000, 1000]),
        ({"state": "running"}, [5200]),
        ({"state": "incomplete"}, [5150]),
        ({"hold": "quarantined"}, [5000]),
        ({"min_step": "4,800", "max_step": "5000"}, [5000, 4900, 4800]),
        ({"state": "superseded", "min_step": "4400"}, [4500, 4400]),
        ({"age": "within-1h"}, []),
        ({"age": "before-7d"}, []),
        ({"verdict": "VALID", "hold": "pinned"}, []),
    ],
)
def test_each_filter_shows_what_passes(
    client: httpx.Client, filters: dict[str, str], expected: list[int]
) -> None:
    assert listed(client, **filters) == expected


def test_pages_show_every_checkpoint_once(client: httpx.Client) -> None:
    found = listed(client)
    assert found == [5300, 5200, 5150, *range(5100, 3000, -100), *range(4500, 0, -100)]
    assert len(found) == NUM_SAVES > DEFAULT_LIMIT


def test_an_age_counts_to_one_moment_on_all_pages(client: httpx.Client) -> None:
    page = client.get(run_path(), params={"age": "within-24h"}).text
    following = re.search(r'href="([^"]*)" rel="next"', page)
    assert following is not None
    address = following[1].replace("&amp;", "&")
    asked = parse_qs(urlsplit(address).query)
    assert set(asked) == {"age", "as_of", "cursor"}
    assert len(steps(client.get(address).text)) == NUM_SAVES - DEFAULT_LIMIT


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verdict", "valid"),
        ("code", "nonsense"),
        ("min_step", "-1"),
        ("max_step", "1e3"),
        ("max_step", "9" * 30),
        ("age", "yesterday"),
        ("state", "finished"),
        ("as_of", "now"),
        ("as_of", "0001-01-01T00:00:00+14:00"),
        ("as_of", "2026-01-01"),
        ("cursor", "x"),
        ("hold", "x" * 65),
    ],
)
def test_a_filter_that_means_nothing_is_told(client: httpx.Client, field: str, value: str) -> None:
    age = {"age": "within-1h"} if field == "as_of" else {}
    answer = client.get(run_path(), params=age | {field: value})
    assert answer.status_code == 422
    assert field in answer.text


def test_filters_work_without_a_reload_and_can_be_gone_back_from(
    browser: Browser, service: SeededService
) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        page.get_by_label("Verdict").select_option("INVALID")
        expect(page.locator("table.checkpoints tbody tr")).to_have_count(2)
        page.get_by_label("Finding").select_option("crc_mismatch")
        expect(page.locator("table.checkpoints tbody tr")).to_have_count(1)
        assert "code=crc_mismatch" in page.url
        page.go_back()
        expect(page.locator("table.checkpoints tbody tr")).to_have_count(2)
        opened(page)


def test_a_step_that_is_none_is_told_on_a_page(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        page = opened(someone.go(run_path()))
        page.get_by_label("Steps from").fill("twelve")
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_contain_text("/min_step: 'twelve' is not a whole number")
        someone.faults.clear()  # the browser complains of the 422 itself


def test_a_phone_in_the_dark_shows_everything(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ, size=PHONE, scheme="dark") as someone:
        page = opened(someone.go(run_path()))
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        assert grave_faults(page) == []


def test_hostile_names_run_nothing_on_their_own_pages(browser: Browser, service: SeededService) -> None:
    with visitor(browser, service.served, Scope.READ) as someone:
        for name in HOSTILE:
            page = opened(someone.go(run_path(name)))
            assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]
        expect(page.get_by_role("heading", level=1)).to_contain_text("Run -2")


def test_what_is_not_there_is_said_to_be_not_there(client: httpx.Client) -> None:
    for address in (
        run_path("nothing"),
        f"{run_path('nothing')}/timeline.json",
        f"{run_path('x')}/checkpoints.csv",
    ):
        answer = client.get(address)
        assert (answer.status_code, "no such run" in answer.text) == (404, True), address


# ---- CSV -----------------------------------------------------------------------------------------------


def test_the_csv_has_what_the_filters_show(client: httpx.Client) -> None:
    answer = client.get(CSV, params={"verdict": "INVALID"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{FULL_RUN}-checkpoints.csv"'
    found = rows_of(answer.text)
    assert [(row["step"], row["verdict"], row["basis"]) for row in found] == [
        ("5100", "INVALID", "damage"),
        ("1700", "INVALID", "damage"),
    ]
    assert rows_of(client.get(CSV, params={"hold": "quarantined"}).text)[0]["holds"] == "quarantined"
    assert len(rows_of(client.get(CSV).text)) == NUM_SAVES


def test_no_cell_of_a_csv_is_a_formula(client: httpx.Client) -> None:
    for name in HOSTILE:
        text = client.get(f"{run_path(name)}/checkpoints.csv").text
        (row,) = csv.DictReader(io.StringIO(text))
        assert row["run"].lstrip("'").startswith(name.lstrip("'")[:3])
        cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
        assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_a_csv_is_bounded_and_reads_a_page_at_a_time(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str | None] = []

    def counted(*args: Any, cursor: str | None, **asked: Any) -> Any:  # noqa: ANN401 - of the real one
        reads.append(cursor)
        return list_checkpoints(*args, cursor=cursor, **asked)

    monkeypatch.setattr(checkpoint_csv, "list_checkpoints", counted)
    monkeypatch.setattr(checkpoint_csv, "MAX_LIMIT", 10)
    monkeypatch.setattr(checkpoint_csv, "MAX_ROWS", 25)
    found = rows_of(client.get(CSV).text)
    assert [int(row["step"]) for row in found[:3]] == [5300, 5200, 5150]
    assert (len(found), len(reads)) == (25, 3)

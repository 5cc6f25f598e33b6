"""A map of 100,000 files: all of them, at once, and each by name."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
import zstandard
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import insert

from ckptguard.model.verdict import Verdict
from ckptguard_api.tables import evidence, findings
from tests.databases import fresh_database
from tests.pages.browsing import PHONE, visitor
from tests.served_app import ServedApp, served_app
from tests.service_rows import add_checkpoint, add_run, add_store, add_verdict

NUM_FILES: Final = 100_000
DAMAGED: Final = "__5_0.distcp"
MISSING: Final = "__missing_0.distcp"
HOSTILE: Final = '<img src=x onerror="alert(1)">\u202e.distcp'


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """A served checkpoint of many files, two of which are not as they should be."""

    served: ServedApp
    path: str


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapped]:
    folder = tmp_path_factory.mktemp("map")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        with database.write() as tx:
            run_id, store_id = add_run(tx, 1), add_store(tx, 1)
            checkpoint_id = add_checkpoint(tx, run_id, store_id, step=1200)
            validation_id = add_verdict(tx, checkpoint_id, Verdict.INVALID)
            tx.execute(
                insert(evidence).values(validation_id=validation_id, body=packed(), num_files=NUM_FILES + 1)
            )
            for number, (path, code) in enumerate(
                [(DAMAGED, "crc_mismatch"), (MISSING, "missing_shard"), (HOSTILE, "crc_mismatch")]
            ):
                place = {"code": code, "check": "content", "severity": "error", "file": path}
                message = f"{path} is not as it should be"
                value = place | {"message": message}
                row = {"validation_id": validation_id, "number": number, "is_about_checkpoint": True}
                tx.execute(insert(findings).values(place | row | {"message": message, "value": value}))
        yield Mapped(served=served, path=f"/ui/in/default/checkpoints/{checkpoint_id}")


def packed() -> bytes:
    names = sorted([*(f"__{rank}_0.distcp" for rank in range(NUM_FILES)), HOSTILE])
    files = [
        {"path": name, "length_bytes": 4_000_000_000 + at, "checksum": f"xxh3-128:{at:032x}", "version": None,
         "modified_at": "2026-11-30T05:41:07.123456+00:00"}
        for at, name in enumerate(names)
    ]  # fmt: skip
    return zstandard.ZstdCompressor().compress(json.dumps(files, separators=(",", ":")).encode())


def ready(page: Page) -> None:
    page.locator(".file-map[data-ready]").wait_for()


def readout(page: Page) -> str:
    return page.locator(".map-readout").inner_text()


def test_a_map_of_100_000_files_is_there_within_a_second_and_small(browser: Browser, mapped: Mapped) -> None:
    """Time is taken in the browser, from the start of the page until the map can be used."""
    with visitor(browser, mapped.served) as someone:
        took_s = []
        for _ in range(3):  # others use this machine too
            began = time.monotonic()
            ready(someone.go(mapped.path))
            took_s.append(time.monotonic() - began)
        assert min(took_s) < 1.0, f"{took_s} s"
        sizes = someone.page.evaluate(
            "performance.getEntriesByType('resource').map(one => [one.name, one.transferSize])"
        )
        assert sum(size for _, size in sizes) < 300_000, sizes


def test_the_browser_does_not_stall_while_the_map_is_drawn_or_walked(
    browser: Browser, mapped: Mapped
) -> None:
    with visitor(browser, mapped.served) as someone:
        page = someone.page
        page.add_init_script(
            "window.stalls = [];"
            "new PerformanceObserver(list => list.getEntries().forEach(one => stalls.push(one.duration)))"
            ".observe({type: 'longtask', buffered: true});"
        )
        someone.go(mapped.path)
        ready(page)
        page.get_by_role("application").focus()
        for key in ("ArrowRight", "ArrowDown", "PageDown", "End", "Home") * 10:
            page.keyboard.press(key)
        worst_ms = max(page.evaluate("window.stalls"), default=0)
        assert worst_ms < 500, f"the page stood still for {worst_ms} ms"


def test_keys_lead_to_each_file_that_is_not_as_it_should_be(browser: Browser, mapped: Mapped) -> None:
    with visitor(browser, mapped.served) as someone:
        page = someone.go(mapped.path)
        ready(page)
        page.get_by_role("application").focus()
        expect(page.locator(".map-readout")).to_contain_text("File 1 of 100,002: faulty · <img src=x")
        page.keyboard.press("n")
        expect(page.locator(".map-readout")).to_contain_text(f"faulty · {DAMAGED} · 4.0 GB · rank 5")
        expect(page.locator(".map-readout")).to_contain_text("crc mismatch")
        page.keyboard.press("n")
        expect(page.locator(".map-readout")).to_contain_text(f"File 100,002 of 100,002: missing · {MISSING}")
        page.keyboard.press("n")
        expect(page.locator(".map-readout")).to_contain_text("No other file")
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".map-readout")).to_contain_text(
            "File 100,001 of 100,002: read, nothing against it"
        )


def test_pointing_tells_name_size_and_rank(browser: Browser, mapped: Mapped) -> None:
    with visitor(browser, mapped.served) as someone:
        page = someone.go(mapped.path)
        ready(page)
        canvas = page.get_by_role("application")
        canvas.scroll_into_view_if_needed()
        canvas.hover(position={"x": 301, "y": 201})
        expect(page.locator(".map-readout")).to_contain_text("GB · rank")
        first = readout(page)
        canvas.hover(position={"x": 305, "y": 201})
        expect(page.locator(".map-readout")).not_to_have_text(first)


def test_a_map_fits_a_phone(browser: Browser, mapped: Mapped) -> None:
    with visitor(browser, mapped.served, size=PHONE, scheme="dark") as someone:
        page = someone.go(mapped.path)
        ready(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.get_by_role("application").click(position={"x": 20, "y": 20})
        expect(page.locator(".map-readout")).to_contain_text("rank")


def test_the_table_pages_through_all_files(browser: Browser, mapped: Mapped) -> None:
    with visitor(browser, mapped.served) as someone:
        page = someone.go(f"{mapped.path}/files?start=100000")
        expect(page.locator("table tbody tr")).to_have_count(2)
        expect(page.locator("table tbody tr").last).to_contain_text("missing")
        page = someone.go(f"{mapped.path}/files")
        page.get_by_role("link", name="Next page").click()
        expect(page.locator("table tbody tr").first).to_contain_text("101")
        page = someone.go(f"{mapped.path}/files?state=f")
        expect(page.locator("table tbody tr")).to_have_count(2)

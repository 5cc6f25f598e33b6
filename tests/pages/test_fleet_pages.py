"""Workers and stores: who does what, and what stands still."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from sqlalchemy import update

from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.tables import stores
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.leased_service import key_of
from tests.pages.browsing import PHONE, visitor
from tests.pages.form_client import form_client
from tests.served_app import ServedApp, served_app
from tests.started_run import Training

WORKERS = "/ui/in/default/workers"
STORES = "/ui/in/default/stores"
DEMO = Capabilities(stores=("demo",), depths=("load",), torch="2.13")


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with fresh_database("sqlite", folder=tmp_path) as database:
        training = Training(database=database)
        training.save(1)
        yield training


@pytest.fixture
def served(training: Training) -> Iterator[ServedApp]:
    with served_app(training.database, projects=("other",)) as served:
        yield served


def row_of(page: Page, name: str) -> Locator:
    return page.locator("tbody tr", has=page.get_by_role("rowheader", name=name))


def queue(training: Training, step: int) -> int:
    with training.database.write() as tx:
        checkpoint = rows.add_checkpoint(tx, training.run_id, training.store_id, step=step)
        return rows.add_validation(tx, checkpoint)


def test_a_worker_is_shown_with_what_it_does_and_followed(
    browser: Browser, served: ServedApp, training: Training
) -> None:
    validation_id = queue(training, 2)
    with visitor(browser, served) as someone:
        page = someone.go(WORKERS)
        expect(page.get_by_text("No worker yet")).to_be_visible()
        expect(page.get_by_text("Live: this page follows")).to_be_visible()
        lease = claim(served.services, worker="canary-1", capabilities=DEMO, actor=SERVICE)
        assert lease is not None
        worker = row_of(page, "canary-1")
        expect(worker).to_contain_text("working")
        progress = Progress(phase="loading", bytes_done=250, bytes_total=1000)
        hear(served.services, key_of(lease), progress=progress, is_draining=True, actor=SERVICE)
        expect(worker).to_contain_text("250 B of 1.0 kB")
        expect(worker).to_contain_text("draining")
        worker.get_by_role("link", name=f"validation {validation_id}").click()
        expect(page).to_have_url(f"{served.url}/ui/in/default/validations/{validation_id}")


def test_silence_and_leaving_are_told_apart(browser: Browser, served: ServedApp, training: Training) -> None:
    with training.database.write() as tx:
        long_ago = tx.now - timedelta(minutes=9)
        rows.add_worker(tx, "lost", seen_at=long_ago)
        rows.add_worker(tx, "left", seen_at=long_ago, is_draining=True)
        rows.add_worker(tx, "waits")
    with visitor(browser, served, size=PHONE) as someone:
        page = someone.go(WORKERS)
        for name, state in (("lost", "silent"), ("left", "gone"), ("waits", "idle")):
            expect(row_of(page, name).locator(".worker-state")).to_contain_text(state)
        expect(row_of(page, "lost").locator("time").last).to_have_text("9 min ago")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_work_for_another_project_is_not_told(served: ServedApp, training: Training) -> None:
    queue(training, 2)
    assert claim(served.services, worker="everybodys", capabilities=DEMO, actor=SERVICE) is not None
    text = form_client(served, project="other").get("/ui/in/other/workers").text
    assert "works for another project" in text
    assert "run-7" not in text
    assert "run-7" in form_client(served).get(WORKERS).text


def test_a_store_is_shown_with_its_queue_and_its_last_verdicts(
    browser: Browser, served: ServedApp, training: Training
) -> None:
    queue(training, 2)
    with training.database.write() as tx:
        tx.execute(update(stores).values(scrub_every_s=7 * 86_400.0))
        rows.add_worker(tx, "canary-1")
    with visitor(browser, served) as someone:
        page = someone.go(STORES)
        store = row_of(page, "demo")
        expect(store).to_contain_text("file:///data/demo")
        expect(store).to_contain_text("working")
        expect(store).to_contain_text("1 worker heard of lately")
        expect(store).to_contain_text("1 queued")
        expect(store).to_contain_text("1 \N{MULTIPLICATION SIGN} ✓ VALID")
        expect(store).to_contain_text("4.1 kB/s")
        expect(store).to_contain_text("every 7 days")


def test_an_empty_project_says_which_command_comes_next(browser: Browser, served: ServedApp) -> None:
    with visitor(browser, served) as someone:
        expect(someone.go("/ui/in/other/stores").locator("pre.command")).to_contain_text("/v1/stores")
        expect(someone.go("/ui/in/other/workers").locator("pre.command")).to_contain_text("ckptguard worker")

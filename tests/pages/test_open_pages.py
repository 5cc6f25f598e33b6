"""Pages of a checkpoint, a run and all runs stay true while they are open, and leave their reader alone."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from ckptguard.model.report import FileEvidence, report_to_json
from ckptguard.model.service import Hold
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import Lease
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.use_cases.holds import hold_checkpoint
from ckptguard_api.use_cases.notes import note_checkpoint
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.leased_service import invalid, key_of, valid
from tests.pages.browsing import Visitor, visitor
from tests.pages.form_client import FormClient, form_client
from tests.registrations import Trainer, evidence, saved
from tests.served_app import ServedApp, served_app

UI = "/ui/in/default"
LIVE = "[data-live-is=live]"
PATIENT_MS = 20_000  # a run and the list of runs are fetched every 5 and 10 s at most
HELD_BACK = "Something changed: it is shown when you leave the part that you are at."


@dataclass(kw_only=True)
class Story:
    """What happens to runs of one service while somebody looks."""

    served: ServedApp
    steps: dict[str, int] = field(default_factory=dict)
    files: Sequence[FileEvidence] = ()
    trainer: Trainer = field(init=False)

    def __post_init__(self) -> None:
        self.trainer = Trainer(database=self.served.services.database)

    def save(self, run: str) -> int:
        """Register the next checkpoint of a run, and return its id."""
        step = self.steps[run] = self.steps.get(run, 0) + 100
        manifest = replace(saved(run, step, save=f"save-{step}"), created_at=datetime.now(UTC))
        registered = self.trainer.register(step, run=run, manifest=manifest)
        self.files = evidence(manifest)
        return int(registered.checkpoint.id)

    def begin(self) -> Lease:
        """Let a worker take what is queued."""
        can = Capabilities(stores=("demo",))
        lease = claim(self.served.services, worker="canary-1", capabilities=can, actor=SERVICE)
        assert lease is not None
        return lease

    def read(self, lease: Lease, done: int, total: int) -> None:
        """Let it tell how far it is."""
        told = Progress(bytes_done=done, bytes_total=total)
        hear(self.served.services, key_of(lease), progress=told, is_draining=False, actor=SERVICE)

    def judge(self, lease: Lease, verdict: Verdict) -> None:
        """Let it give its verdict."""
        report = valid(files=self.files) if verdict is Verdict.VALID else invalid()
        give_verdict(self.served.services, key_of(lease), report=report_to_json(report), actor=SERVICE)

    def judged(self, run: str) -> int:
        """Register a checkpoint that is found VALID at once."""
        checkpoint_id = self.save(run)
        self.judge(self.begin(), Verdict.VALID)
        return checkpoint_id

    def note(self, checkpoint_id: int, text: str) -> None:
        """Write something about a checkpoint."""
        about = {"project_id": 1, "checkpoint_id": checkpoint_id}
        note_checkpoint(self.served.services, **about, text=text, actor=SERVICE)

    def hold(self, checkpoint_id: int) -> None:
        """Let somebody else quarantine a checkpoint."""
        about = {"project_id": 1, "checkpoint_id": checkpoint_id}
        hold_checkpoint(self.served.services, **about, hold=Hold.QUARANTINED, reason="spike", actor=SERVICE)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("open")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        yield Story(served=served)


@pytest.fixture(scope="module")
def someone(browser: Browser, story: Story) -> Iterator[Visitor]:
    with visitor(browser, story.served) as visiting:
        yield visiting


def opened(someone: Visitor, path: str) -> Page:
    """Open a page, and leave something in it that a reload takes away."""
    page = someone.go(path)
    expect(page.locator(LIVE)).to_be_visible()
    page.evaluate("window.wasNeverReloaded = true")
    return page


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.wasNeverReloaded === true"))


def news(page: Page) -> Locator:
    return page.locator("[data-live-news]")


def test_a_checkpoint_is_followed_from_the_queue_to_its_verdict(story: Story, someone: Visitor) -> None:
    checkpoint_id = story.save("followed")
    page = opened(someone, f"{UI}/checkpoints/{checkpoint_id}")
    expect(page.get_by_text("None yet: validation")).to_contain_text("is queued.")
    lease = story.begin()
    expect(page.get_by_role("heading", name="is running, attempt 1")).to_be_visible()
    story.read(lease, 40, 100)
    expect(page.get_by_text("40 B of 100 B (40 %)")).to_be_visible()
    story.judge(lease, Verdict.INVALID)
    expect(page.locator("h1 .verdict")).to_contain_text("INVALID damage")
    expect(news(page)).to_have_text("Updated: Step 100 INVALID damage")
    expect(page.get_by_role("heading", name="is running")).to_have_count(0)
    expect(page.locator("table.ladder tbody tr")).to_have_count(8)
    expect(page.locator(".finding.error")).to_have_count(1)
    expect(page.locator(".file-map[data-ready=true] .map-legend li")).to_have_text(["faulty: 1"])
    assert is_marked(page)


def test_what_somebody_fills_in_is_kept_until_they_are_done(story: Story, someone: Visitor) -> None:
    checkpoint_id = story.judged("filled-in")
    page = opened(someone, f"{UI}/checkpoints/{checkpoint_id}")
    page.locator("#action-pin summary").click()
    reason = page.locator("#action-pin [name=reason]")
    reason.fill("released")
    story.hold(checkpoint_id)
    expect(page.locator("h1")).to_contain_text("quarantined")
    expect(news(page)).to_have_text(HELD_BACK)
    page.locator("h1").click()
    expect(page.locator("#action-quarantine")).to_have_count(1)
    assert reason.input_value() == "released", "what is typed stays, even where somebody looks elsewhere"
    reason.fill("")
    page.locator("h1").click()
    expect(page.locator("#action-quarantine")).to_have_count(0)
    expect(page.locator("#action-pin[open]")).to_have_count(1)


def test_what_somebody_marks_stays_marked(story: Story, someone: Visitor) -> None:
    checkpoint_id = story.judged("marked")
    story.note(checkpoint_id, "the first")
    page = opened(someone, f"{UI}/checkpoints/{checkpoint_id}")
    page.evaluate("() => getSelection().selectAllChildren(document.querySelector('#noted .lines'))")
    story.note(checkpoint_id, "the second")
    expect(news(page)).to_have_text(HELD_BACK)
    assert page.evaluate("getSelection().toString()").strip() == "the first"
    page.evaluate("() => getSelection().removeAllRanges()")
    expect(page.get_by_text("the second")).to_be_visible()
    expect(news(page)).to_have_text("")


def test_a_run_shows_what_comes_and_what_became_of_it(story: Story, someone: Visitor) -> None:
    story.judged("training")
    page = opened(someone, f"{UI}/runs/training")
    expect(page.locator("#timeline[data-ready='1']")).to_be_attached()
    newer = story.save("training")
    expect(page.locator("#checkpoints tbody tr")).to_have_count(2, timeout=PATIENT_MS)
    expect(page.locator("#timeline[data-ready='2']")).to_be_attached(timeout=PATIENT_MS)
    story.judge(story.begin(), Verdict.INVALID)
    expect(page.locator("#now")).to_contain_text("newest INVALID", timeout=PATIENT_MS)
    expect(news(page)).to_contain_text("Updated: newest INVALID step 200 is INVALID")
    expect(page.locator("#checkpoints tbody tr").first).to_contain_text("INVALID")
    assert is_marked(page)
    page.get_by_role("link", name="200", exact=True).click()
    page.wait_for_url(f"**/checkpoints/{newer}")


def test_whoever_goes_by_keyboard_finds_the_table_as_it_was(story: Story, someone: Visitor) -> None:
    story.judged("keyboard")
    page = opened(someone, f"{UI}/runs/keyboard")
    link = page.locator("#checkpoints tbody a").first
    link.focus()
    story.judged("keyboard")
    expect(page.locator("#now")).to_contain_text("step 200", timeout=PATIENT_MS)
    expect(news(page)).to_have_text(HELD_BACK)
    expect(page.locator("#checkpoints tbody tr")).to_have_count(1)
    assert link.evaluate("one => one === document.activeElement")
    page.locator("main").focus()
    expect(page.locator("#checkpoints tbody tr")).to_have_count(2)


def test_the_first_checkpoint_of_a_run_brings_the_page_that_shows_it(story: Story, someone: Visitor) -> None:
    with story.served.services.database.write() as tx:
        rows.add_run(tx, 1, "first")
    page = opened(someone, f"{UI}/runs/first")
    expect(page.get_by_text("No checkpoint yet", exact=True)).to_be_visible()
    story.save("first")
    expect(page.locator("#checkpoints tbody tr")).to_have_count(1, timeout=PATIENT_MS)
    story.judge(story.begin(), Verdict.VALID)


def test_the_list_of_runs_follows_and_keeps_filter_and_place(story: Story, someone: Visitor) -> None:
    ids = [story.judged(f"listed-{number:02d}") for number in range(12)]
    someone.page.set_viewport_size({"width": 1360, "height": 400})
    page = opened(someone, f"{UI}/runs")
    page.get_by_label("Name has").fill("listed")
    page.wait_for_url("**q=listed**")
    expect(page.locator("table.runs tbody tr")).to_have_count(12)
    expect(page.locator("[data-live-line]")).to_have_text("0 need a person")
    page.get_by_label("Name has").blur()
    page.evaluate("window.scrollTo(0, 300)")
    story.hold(ids[7])
    first = page.locator("table.runs tbody tr").first
    expect(first).to_contain_text("nothing to resume from", timeout=PATIENT_MS)
    expect(first).to_contain_text("listed-07")
    expect(news(page)).to_have_text("Updated: 1 needs a person")
    expect(page.locator("table.runs tbody tr")).to_have_count(12)
    expect(page.get_by_label("Name has")).to_have_value("listed")
    assert page.evaluate("window.scrollY") == 300
    assert is_marked(page)


def test_an_answer_to_an_earlier_filter_is_thrown_away(story: Story, someone: Visitor) -> None:
    story.judged("early")
    story.judged("late")
    held: list[Route] = []
    page = opened(someone, f"{UI}/runs?q=early")
    page.route("**/runs?q=early", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks it
    with page.expect_request("**/runs?q=early"):
        story.save("late")
    page.get_by_label("Name has").fill("late")
    page.wait_for_url("**q=late**")
    for route in held:
        route.continue_()
    page.unroute("**/runs?q=early")
    expect(page.locator("table.runs tbody tr")).to_have_text([re.compile(r"^\s*late")])
    story.judge(story.begin(), Verdict.VALID)


def test_ages_go_on_by_themselves(browser: Browser, story: Story) -> None:
    checkpoint_id = story.judged("ages")
    with visitor(browser, story.served) as someone:
        someone.page.clock.install()
        page = opened(someone, f"{UI}/checkpoints/{checkpoint_id}")
        page.clock.fast_forward("02:00:10")
        expect(page.locator("#known time").first).to_contain_text("h ago")


def test_an_unchanged_page_is_not_made_again(story: Story) -> None:
    checkpoint_id = story.judged("unchanged")
    client = form_client(story.served)
    for path in (f"{UI}/runs", f"{UI}/runs/unchanged", f"{UI}/checkpoints/{checkpoint_id}",
                 f"{UI}/runs/unchanged/timeline.json"):  # fmt: skip
        known = asked_twice(client, path)
        story.note(checkpoint_id, f"about {path}")
        answer = client.http.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.headers["ETag"] != known) == (200, True), path


def asked_twice(client: FormClient, path: str) -> str:
    """Return the name of a page that is not sent again; it may meet the end of a minute once."""
    for _ in range(2):
        known = client.get(path).headers["ETag"]
        again = client.http.get(path, headers={"If-None-Match": known})
        if again.status_code == 304:
            assert again.content == b""
            return known
    pytest.fail(f"{path} is made again each time")


def test_what_happens_to_another_run_is_no_news_of_this_one(story: Story) -> None:
    story.judged("this")
    other = story.judged("other")
    client = form_client(story.served)
    path = f"{UI}/runs/this/timeline.json"
    known = client.get(path).headers["ETag"]
    story.note(other, "elsewhere")
    assert client.http.get(path, headers={"If-None-Match": known}).status_code == 304


@pytest.mark.parametrize("path", ["runs", "runs/plain"])
def test_without_script_a_page_says_that_it_is_not_live(browser: Browser, story: Story, path: str) -> None:
    story.judged("plain")
    with visitor(browser, story.served, java_script_enabled=False) as someone:
        page = someone.go(f"{UI}/{path}")
        expect(page.get_by_text("Not live: reload the page to see what is new.")).to_be_visible()

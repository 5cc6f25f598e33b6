"""What an operator does about a checkpoint: in a browser, with a reason, told before it hides anything."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import update

from ckptguard.model.service import EventKind, Scope
from ckptguard_api.tables import checkpoints
from tests.databases import fresh_database
from tests.pages.browsing import PHONE, visitor
from tests.pages.busy_project import SCRIPT, BusyProject, count_events, events_of, fill
from tests.pages.form_client import form_client
from tests.served_app import ServedApp, served_app


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("actions")
    with fresh_database("sqlite", folder=folder) as database, served_app(database) as served:
        yield served


@pytest.fixture(scope="module")
def busy(served: ServedApp) -> BusyProject:
    return fill(served.services)


@pytest.fixture(autouse=True)
def without_holds(served: ServedApp, busy: BusyProject) -> None:
    with served.services.database.write() as tx:
        free = {"is_quarantined": False, "is_suspect": False, "is_pinned": False}
        tx.execute(update(checkpoints).where(checkpoints.c.project_id == busy.project_id).values(free))


def page_of(checkpoint_id: int) -> str:
    return f"/ui/in/default/checkpoints/{checkpoint_id}"


def act(page: Page, title: str, reason: str, button: str) -> None:
    """Open an action, say why, and send it."""
    action = page.locator("details.action", has_text=title)
    action.locator("summary").click()
    action.get_by_label("Reason").fill(reason)
    action.get_by_role("button", name=button).click()
    page.wait_for_load_state("load")


def held(served: ServedApp, checkpoint_id: int) -> list[str]:
    answer: dict[str, Any] = served.client().get(f"/v1/checkpoints/{checkpoint_id}").json()
    return [one["hold"] for one in answer["holds"]]


def test_a_quarantine_says_what_launchers_get_instead_and_is_done_only_then(
    browser: Browser, served: ServedApp, busy: BusyProject
) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(page_of(busy.good))
        act(page, "Quarantine", "loss spike after it", "Next: see what changes")
        expect(page.get_by_role("heading", name="Quarantine step 200")).to_be_visible()
        expect(page.get_by_text("They will get step 100")).to_be_visible()
        expect(page.get_by_text("A restart then loses 100 steps more.")).to_be_visible()
        assert held(served, busy.good) == []
        page.get_by_role("button", name="Quarantine step 200").click()
        expect(page.locator(".notice[role=status]")).to_contain_text("Quarantined")
    assert held(served, busy.good) == ["quarantined"]
    told = events_of(served.services, busy.good, EventKind.CHECKPOINT_HELD)[-1]
    assert told.data == {"hold": "quarantined", "reason": "loss spike after it"}
    assert told.actor.startswith("token:test (ckg_")
    target = served.client().get(f"/v1/runs/{quote(busy.run)}/resume-target").json()
    assert target["target"]["id"] == busy.older


def test_leaving_it_as_it_is_changes_nothing(browser: Browser, served: ServedApp, busy: BusyProject) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(page_of(busy.good))
        before = count_events(served.services)
        act(page, "Quarantine", "perhaps", "Next: see what changes")
        page.get_by_role("link", name="Leave it as it is").click()
        expect(page).to_have_url(served.url + page_of(busy.good))
    assert count_events(served.services) == before
    assert held(served, busy.good) == []


def test_a_confirmation_of_what_is_no_longer_so_asks_again(served: ServedApp, busy: BusyProject) -> None:
    client = form_client(served)
    asked = client.post(f"{page_of(busy.good)}/quarantine", reason="spike").text
    confirmed = asked.partition('name="confirmed" value="')[2].partition('"')[0]
    other = client.post(f"{page_of(busy.older)}/quarantine", reason="other")
    seen = other.text.partition('name="confirmed" value="')[2].partition('"')[0]
    assert client.post(f"{page_of(busy.older)}/quarantine", reason="other", confirmed=seen).status_code == 303
    again = client.post(f"{page_of(busy.good)}/quarantine", reason="spike", confirmed=confirmed)
    assert again.status_code == 200
    assert "Something changed since you looked" in again.text
    assert "none_valid" in again.text or "pending" in again.text
    assert held(served, busy.good) == []


def test_a_release_says_what_comes_back(browser: Browser, served: ServedApp, busy: BusyProject) -> None:
    with served.services.database.write() as tx:
        change = update(checkpoints).where(checkpoints.c.id == busy.good)
        tx.execute(change.values(is_quarantined=True, is_pinned=True))
    with visitor(browser, served) as someone:
        page = someone.go(page_of(busy.good))
        act(page, "Release", "false alarm", "Next: see what changes")
        expect(page.get_by_text("They will get step 200")).to_be_visible()
        page.get_by_role("button", name="Release step 200").click()
        expect(page.locator(".notice[role=status]")).to_contain_text("Released")
        assert held(served, busy.good) == ["pinned"]
        act(page, "Release", "no longer needed", "Next: see what changes")
        expect(page.locator(".notice[role=status]")).to_contain_text("Released")
    assert held(served, busy.good) == []


def test_pin_and_revalidate_are_done_at_once_with_their_reason(
    browser: Browser, served: ServedApp, busy: BusyProject
) -> None:
    with visitor(browser, served, size=PHONE) as someone:
        page = someone.go(page_of(busy.bad))
        act(page, "Pin", f"kept for {SCRIPT}", "Pin")
        expect(page.locator(".notice[role=status]")).to_contain_text("Pinned")
        act(page, "Revalidate", "the disk was replaced", "Ask for a verdict")
        expect(page.locator(".notice[role=status]")).to_contain_text("A verdict is asked for")
    assert held(served, busy.bad) == ["pinned"]
    (asked,) = events_of(served.services, busy.bad, EventKind.VALIDATION_REQUESTED)
    assert asked.data == {"depth": "load", "reason": "the disk was replaced", "is_new": True}


def test_a_note_of_several_lines_is_shown_as_it_is(
    browser: Browser, served: ServedApp, busy: BusyProject
) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(page_of(busy.older))
        page.get_by_label("A note").fill(f"first {SCRIPT}\nsecond")
        page.get_by_role("button", name="Add note").click()
        expect(page.locator(".notes .lines")).to_have_text(f"first {SCRIPT}second")
    (noted,) = events_of(served.services, busy.older, EventKind.CHECKPOINT_NOTED)
    assert noted.data == {"text": f"first {SCRIPT}\nsecond"}


def test_an_action_by_the_keyboard_alone(browser: Browser, served: ServedApp, busy: BusyProject) -> None:
    with visitor(browser, served) as someone:
        page = someone.go(page_of(busy.older))
        page.locator("#action-pin summary").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("by hand")
        page.keyboard.press("Enter")
        expect(page.locator(".notice[role=status]")).to_contain_text("Pinned")


def test_who_may_only_look_is_offered_nothing(browser: Browser, served: ServedApp, busy: BusyProject) -> None:
    with visitor(browser, served, Scope.READ) as someone:
        page = someone.go(page_of(busy.bad))
        expect(page.get_by_text("read only")).to_be_visible()
        expect(page.locator("main form")).to_have_count(0)
        expect(page.get_by_role("heading", name="Notes")).to_be_visible()


@pytest.mark.parametrize("reason", ["", "   ", "two\nlines", "x" * 1001, "turn\u202earound"])
def test_a_reason_that_cannot_be_kept_is_refused(served: ServedApp, busy: BusyProject, reason: str) -> None:
    client = form_client(served)
    before = count_events(served.services)
    for verb in ("pin", "quarantine", "revalidate", "release"):
        answer = client.post(f"{page_of(busy.good)}/{verb}", reason=reason, what="quarantined")
        assert answer.status_code == 422, verb
    assert count_events(served.services) == before


@pytest.mark.parametrize("text", ["", " \r\n ", "x" * 4001, "bell\a"])
def test_a_note_that_cannot_be_kept_is_refused(served: ServedApp, busy: BusyProject, text: str) -> None:
    assert form_client(served).post(f"{page_of(busy.good)}/note", text=text).status_code == 422


@pytest.mark.parametrize(
    ("verb", "fields"),
    [("release", {"what": "everything"}), ("release", {}), ("revalidate", {"depth": "deeper"})],
)
def test_a_form_that_no_page_has_is_refused(
    served: ServedApp, busy: BusyProject, verb: str, fields: dict[str, str]
) -> None:
    answer = form_client(served).post(f"{page_of(busy.good)}/{verb}", reason="why", **fields)
    assert answer.status_code == 422


def test_damage_is_not_lifted_on_one_workers_word(served: ServedApp, busy: BusyProject) -> None:
    client = form_client(served)
    path = f"{page_of(busy.bad)}/release"
    asked = client.post(path, reason="looks fine", what="damage")
    assert "Without one this is refused" in asked.text
    seen = asked.text.partition('name="confirmed" value="')[2].partition('"')[0]
    refused = client.post(path, reason="looks fine", what="damage", confirmed=seen)
    assert refused.status_code == 409
    assert "another worker" in refused.text


def test_a_checkpoint_of_another_project_is_none(served: ServedApp) -> None:
    client = form_client(served)
    for verb in ("pin", "quarantine", "revalidate", "release", "note"):
        fields = {"reason": "why", "what": "pinned", "text": "note"}
        assert client.post(f"{page_of(999_999)}/{verb}", **fields).status_code == 404

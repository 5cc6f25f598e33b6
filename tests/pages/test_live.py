"""A page follows what happens without a reload, whatever becomes of the service meanwhile."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from pydantic import SecretStr
from sqlalchemy import select

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Depth
from ckptguard.model.report import report_to_json
from ckptguard.model.service import AttemptEnding, Scope
from ckptguard.scan.result import FileResult, FileScan, file_result_to_json
from ckptguard.testing.edits import copy_checkpoint
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import Lease
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.results import store_files
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.settings import Settings
from ckptguard_api.tables import tokens
from ckptguard_api.use_cases.live import newest_event
from ckptguard_api.use_cases.notes import note_checkpoint
from ckptguard_api.use_cases.revalidate import request_validation
from ckptguard_api.use_cases.tokens import revoke_token
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.integration.lease_service import eventually
from tests.integration.worker_process import WorkerProcess, running_worker
from tests.leased_service import invalid, key_of
from tests.pages.browsing import Visitor, visitor
from tests.pages.form_client import FormClient, form_client
from tests.registrations import Trainer
from tests.served_app import ServedApp, served_app

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
SAVE = "dcp_torch2_14_1_fsdp2_ws2"
SHARD = "__0_0.distcp"
FAULT = Finding(
    code=FindingCode.CRC_MISMATCH,
    check=CheckName.CONTENT,
    severity=Severity.ERROR,
    basis=Basis.DAMAGE,
    file=SHARD,
    message="m",
)
LIVE = "Live: this page follows what happens."
NOT_ANSWERED = (
    "net::ERR_CONNECTION_REFUSED",
    "net::ERR_INCOMPLETE_CHUNKED_ENCODING",
    "net::ERR_EMPTY_RESPONSE",
)


@dataclass(kw_only=True)
class Service:
    """A service that can be started again at the same address."""

    url: str
    settings: Settings
    served: ServedApp

    @contextmanager
    def started_again(self) -> Iterator[ServedApp]:
        """Stop it as a signal does, and start it again over the same database."""
        self.served.stop()
        with served_app(Database(self.url), settings=self.settings, projects=(),
                        port=urlsplit(self.served.url).port or 0) as again:  # fmt: skip
            yield again


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with fresh_database("sqlite", folder=tmp_path) as database:
        url = database.engine.url.render_as_string(hide_password=False)
        settings = Settings(
            database_url=SecretStr(url), data_dir=tmp_path / "unused", heartbeat_every_s=0.2, lease_s=60.0
        )
        with served_app(database, settings=settings) as served:
            yield Service(url=url, settings=settings, served=served)


def register(served: ServedApp, root: Path) -> tuple[int, int]:
    """Register a real checkpoint, and return it and its validation."""
    copy_checkpoint(CORPUS / SAVE, root / "step-1")
    admin = served.client()
    store = {"name": "demo", "url": f"file://{root}", "times": "copied", "settle_s": 0}
    assert admin.post("/v1/stores", json=store).status_code == 201
    body = {"location": {"store": "demo", "path": "step-1"}, "step": 1, "format": "dcp"}
    answer = admin.post("/v1/runs/r/checkpoints", json=body | {"created_at": "2026-01-01T00:00:00Z"})
    assert answer.status_code == 201, answer.text
    checkpoint_id = answer.json()["checkpoint"]["id"]
    queued = admin.get(f"/v1/checkpoints/{checkpoint_id}/validations").json()["items"]
    return checkpoint_id, queued[0]["id"]


def mark(page: Page) -> None:
    """Leave something that a reload takes away."""
    page.evaluate("window.wasNeverReloaded = true")


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.wasNeverReloaded === true"))


def forgive_silence(someone: Visitor) -> None:
    """Take back that nobody answered while nobody was there; a browser says so on its console."""
    someone.faults = [one for one in someone.faults if not any(words in one for words in NOT_ANSWERED)]


@pytest.mark.torch
def test_a_validation_is_followed_from_the_queue_to_its_verdict_across_a_restart(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    _, validation_id = register(service.served, tmp_path / "store")
    environment = {"CKPTGUARD_TOKEN": service.served.token(Scope.WORK)}
    with ExitStack() as ends, visitor(browser, service.served) as someone:
        page = someone.go(f"/ui/in/default/validations/{validation_id}")
        mark(page)
        expect(page.get_by_text(LIVE)).to_be_visible()
        expect(page.get_by_text("No worker took it yet.")).to_be_visible()
        worker: WorkerProcess = ends.enter_context(
            running_worker(service.served.url, tmp_path / "store", tmp_path / "log", environment=environment)
        )
        expect(page.get_by_role("heading", name="Progress of attempt 1")).to_be_visible(timeout=60_000)
        expect(page.locator("#progress ~ dl")).to_contain_text("starting")
        worker.process.send_signal(signal.SIGSTOP)
        with service.started_again():
            expect(page.get_by_text(LIVE)).to_be_visible()
            worker.process.send_signal(signal.SIGCONT)
            expect(page.locator(".verdict")).to_contain_text("VALID loaded", timeout=60_000)
            expect(page.get_by_role("heading", name="Checks")).to_be_visible()
            expect(page.get_by_text("Finished: nothing more will change here by itself.")).to_be_visible()
            assert is_marked(page)
            page.reload()
            expect(page.locator(".verdict")).to_contain_text("VALID loaded")
            forgive_silence(someone)
            worker.stop()


def note(served: ServedApp, checkpoint_id: int, text: str) -> None:
    about = {"project_id": 1, "checkpoint_id": checkpoint_id}
    note_checkpoint(served.services, **about, text=text, actor=SERVICE)


def queued(served: ServedApp) -> tuple[int, int]:
    """Add a checkpoint whose verdict is asked for, and return it and its validation."""
    with served.services.database.write() as tx:
        run = rows.add_run(tx, 1)
        checkpoint_id = rows.add_checkpoint(tx, run, rows.add_store(tx, 1), step=1)
    asked, _ = request_validation(
        served.services,
        project_id=1,
        checkpoint_id=checkpoint_id,
        depth=Depth.LOAD,
        reason="w",
        actor=SERVICE,
    )
    return checkpoint_id, asked.id


def path_of(validation_id: int) -> str:
    return f"/ui/in/default/validations/{validation_id}"


def start(served: ServedApp, worker: str) -> Lease:
    """Let a worker take what is queued."""
    lease = claim(served.services, worker=worker, capabilities=Capabilities(stores=("demo",)), actor=SERVICE)
    assert lease is not None
    return lease


def give_back(served: ServedApp, lease: Lease, reason: str) -> None:
    release(served.services, key_of(lease), ending=AttemptEnding.DRAINED, reason=reason, actor=SERVICE)


def test_what_happens_between_the_page_and_its_stream_is_not_missed(
    browser: Browser, service: Service
) -> None:
    served = service.served
    _, validation_id = queued(served)
    with visitor(browser, served) as someone:
        late: list[Lease] = []

        def hold_back(route: Route) -> None:
            if not late:
                late.append(start(served, "early-bird"))
            route.continue_()

        someone.page.route("**/stream?*", hold_back)
        page = someone.go(path_of(validation_id))
        expect(page.get_by_role("heading", name="Progress of attempt 1")).to_be_visible()
        expect(page.get_by_text("early-bird").first).to_be_visible()
        someone.page.unroute("**/stream?*")


def test_where_no_stream_can_be_had_the_page_asks_again_and_again(browser: Browser, service: Service) -> None:
    served = service.served
    _, validation_id = queued(served)
    with visitor(browser, served) as someone:
        someone.page.route("**/stream?*", lambda route: route.fulfill(status=503, body="no"))
        page = someone.go(path_of(validation_id))
        mark(page)
        expect(page.get_by_text("No stream; asking every 5 s.")).to_be_visible()
        start(served, "canary-1")
        expect(page.get_by_role("heading", name="Progress of attempt 1")).to_be_visible(timeout=10_000)
        assert is_marked(page)
        someone.faults = [one for one in someone.faults if "503" not in one]


def test_a_paused_page_stands_still_until_it_goes_on(browser: Browser, service: Service) -> None:
    served = service.served
    _, validation_id = queued(served)
    with visitor(browser, served) as someone:
        page = someone.go(path_of(validation_id))
        expect(page.get_by_text(LIVE)).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("Paused: nothing new is shown.")).to_be_visible()
        start(served, "canary-1")
        expect(page.get_by_text("No worker took it yet.")).to_be_visible()
        eventually(lambda: served.services.events.num_listeners == 0, what="the end of the stream")
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("heading", name="Progress of attempt 1")).to_be_visible()


def test_a_flood_of_events_is_one_question_a_second(browser: Browser, service: Service) -> None:
    served = service.served
    checkpoint_id, validation_id = queued(served)
    lease = start(served, "canary-1")
    with visitor(browser, served) as someone:
        page = someone.go(path_of(validation_id))
        expect(page.get_by_text(LIVE)).to_be_visible()
        before = len(someone.requests)
        for number in range(1, 41):
            hear(served.services, key_of(lease), progress=Progress(bytes_done=number, bytes_total=40),
                 is_draining=False, actor=SERVICE)  # fmt: skip
            note(served, checkpoint_id, f"{number}")
        expect(page.get_by_text("40 B of 40 B")).to_be_visible()
        asked = [one for one in someone.requests[before:] if one.endswith(path_of(validation_id))]
        assert 1 <= len(asked) <= 6, asked


def test_a_lost_attempt_is_shown_with_its_reason(browser: Browser, service: Service) -> None:
    served = service.served
    _, validation_id = queued(served)
    lease = start(served, "canary-1")
    with visitor(browser, served) as someone:
        page = someone.go(path_of(validation_id))
        expect(page.get_by_text(LIVE)).to_be_visible()
        give_back(served, lease, "the node goes away")
        expect(page.get_by_text("the node goes away")).to_be_visible()
        expect(page.locator(".tag.state").first).to_contain_text("queued")


def test_the_end_of_the_token_ends_the_stream_and_leads_to_signing_in(
    browser: Browser, service: Service
) -> None:
    served = service.served
    _, validation_id = queued(served)
    with visitor(browser, served) as someone:
        page = someone.go(path_of(validation_id))
        expect(page.get_by_text(LIVE)).to_be_visible()
        with served.services.database.read() as tx:
            own = tx.execute(select(tokens.c.id).where(tokens.c.parent_id.is_not(None))).scalars().one()
        revoke_token(served.services, own, by=SERVICE, own_id=None)
        expect(page.get_by_label("Token")).to_be_visible(timeout=15_000)
        assert served.services.events.num_listeners == 0
        assert path_of(validation_id) in unquote(page.url)
        someone.faults = [one for one in someone.faults if 'is not "text/event-stream"' not in one]


def test_a_page_that_is_left_keeps_no_stream(browser: Browser, service: Service) -> None:
    served = service.served
    _, validation_id = queued(served)
    with visitor(browser, served) as someone:
        page = someone.go(path_of(validation_id))
        expect(page.get_by_text(LIVE)).to_be_visible()
        assert served.services.events.num_listeners == 1
        someone.go("/ui/in/default/stores")
        eventually(lambda: served.services.events.num_listeners == 0, what="the end of the stream")
        page.go_back()
        expect(page.get_by_text(LIVE)).to_be_visible()
        assert served.services.events.num_listeners == 1


def test_the_map_of_the_files_follows_and_becomes_that_of_the_verdict(
    browser: Browser, service: Service
) -> None:
    served = service.served
    trainer = Trainer(database=served.services.database, project="default")
    trainer.register(1)
    lease = start(served, "canary-1")
    with visitor(browser, served) as someone:
        page = someone.go(path_of(lease.validation.id))
        legend = page.locator(".map-legend")
        expect(legend).to_have_text("not read yet: 2")
        expect(page.get_by_text(LIVE)).to_be_visible()
        results = [
            file_result_to_json(FileResult(scan=FileScan(path=path, length_bytes=1, findings=findings)))
            for path, findings in ((".metadata", ()), (SHARD, (FAULT,)))
        ]
        for result in results:
            store_files(served.services, key_of(lease), files=[result], actor=SERVICE)
        hear(
            served.services, key_of(lease), progress=Progress(bytes_done=2), is_draining=False, actor=SERVICE
        )
        expect(legend.locator("li")).to_have_text(["faulty: 1", "read, nothing against it so far: 1"])
        page.locator(".file-map canvas").press("n")
        expect(page.locator(".map-readout")).to_contain_text(SHARD)
        give_verdict(served.services, key_of(lease), report=report_to_json(invalid()), actor=SERVICE)
        expect(page.locator(".verdict")).to_contain_text("INVALID")
        expect(legend.locator("li")).to_have_text(["faulty: 1"])


def heard(client: FormClient, address: str, *, count: int, **headers: str) -> list[str]:
    """Return what a stream sends first: texts of notes."""
    texts: list[str] = []
    with client.http.stream("GET", address, headers=headers) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: "):
                texts.append(json.loads(line.removeprefix("data: "))["data"]["text"])
            if len(texts) == count:
                break
    return texts


def test_a_stream_goes_on_after_what_the_page_or_the_browser_saw(service: Service) -> None:
    served = service.served
    with served.services.database.write() as tx:
        run, store = rows.add_run(tx, 1, "mine"), rows.add_store(tx, 1)
        mine = rows.add_checkpoint(tx, run, store, step=1)
        other = rows.add_checkpoint(tx, rows.add_run(tx, 1, "other"), store, step=1)
    client = form_client(served)
    before = newest_event(served.services)
    for number in range(4):
        note(served, other if number == 2 else mine, str(number))
    of_run, of_project = "/ui/in/default/runs/mine/stream", "/ui/in/default/stream"
    assert heard(client, f"{of_project}?after={before}", count=4) == ["0", "1", "2", "3"]
    assert heard(client, f"{of_run}?after={before}", count=3) == ["0", "1", "3"]
    last = {"Last-Event-ID": str(before + 2)}
    assert heard(client, f"{of_run}?after={before}", count=1, **last) == ["3"], "the browser knows better"


def test_a_run_that_is_none_has_no_stream(service: Service) -> None:
    assert form_client(service.served).get("/ui/in/default/runs/none/stream").status_code == 404

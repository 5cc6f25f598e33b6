"""Webhooks: signed, filtered, retried, at least once, never a second row; against a real receiver."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from ckptguard.errors import ConflictError, InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.backoff import DELAYS_S, JITTER, delay_s_after
from ckptguard_api.domain.egress import address_problem, url_problems
from ckptguard_api.domain.subject import Subject
from ckptguard_api.domain.webhook_message import MAX_BODY_BYTES, Happening, message_body
from ckptguard_api.domain.webhook_signature import new_secret, signature_headers
from ckptguard_api.leasing.schedule import Task, claim_round, do_round, prepare
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.webhooks import MAX_WEBHOOKS
from ckptguard_api.sending import Outcome, Sender
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import deliveries, delivery_tries
from ckptguard_api.use_cases import webhooks as use_cases
from ckptguard_api.use_cases.deliver import BATCH_PER_WEBHOOK, Deliverer
from ckptguard_api.use_cases.fan_out import fan_out
from tests.databases import fresh_database
from tests.service_rows import add_checkpoint, add_project, add_run, add_store
from tests.webhook_receiver import HANG, Receiver, running_receiver

LOOPBACK = "127.0.0.0/8"
FAN_OUT = Task(name="webhooks", every_s=1.0, work=fan_out)


class Site:
    """A service with one project, a run and a checkpoint, and a clock that tests move."""

    def __init__(self, database: Database, clock: FakeClock, *, timeout_s: float = 5.0) -> None:
        self.clock = clock
        self.database = database
        self.services = Services(database=database, settings=Settings(webhook_allowed_networks=(LOOPBACK,)))
        self.deliverer = Deliverer(
            database=database,
            sender=Sender(allowed_networks=(LOOPBACK,), timeout_s=timeout_s),
            chance=random.Random(7),  # noqa: S311 - jitter
        )
        with database.write() as tx:
            self.project_id = add_project(tx)
            self.run_id = add_run(tx, self.project_id)
            store_id = add_store(tx, self.project_id)
            self.checkpoint_id = add_checkpoint(tx, self.run_id, store_id, step=1200)
        prepare(database, [FAN_OUT])

    def webhook(self, url: str, *kinds: EventKind) -> use_cases.MadeWebhook:
        """Make a webhook."""
        return use_cases.create_webhook(
            self.services, project_id=self.project_id, url=url, kinds=kinds, by=SERVICE
        )

    def happen(self, kind: EventKind, **data: object) -> int:
        """Record an event about the checkpoint."""
        about = Subject(project_id=self.project_id, run_id=self.run_id, checkpoint_id=self.checkpoint_id)
        with self.database.write() as tx:
            event = record(tx, kind, actor=SERVICE, about=about, data=dict(data))
        return event.id

    def spread(self) -> None:
        """Do one round of the outbox."""
        self.clock.advance(1.0)
        held = claim_round(self.database, FAN_OUT)
        assert held is not None
        assert do_round(self.database, FAN_OUT, held) is not None

    def log(self, webhook_id: int) -> Sequence[use_cases.LoggedDelivery]:
        """Return the deliveries of a webhook, newest first."""
        return use_cases.deliveries_of(
            self.services, webhook_id, project_id=self.project_id, before_id=None, limit=100
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Return a service on both databases, whose time stands still."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    clock = FakeClock(datetime(2026, 11, 29, 12, tzinfo=UTC))
    with fresh_database(request.param, folder=tmp_path, postgres=server, clock=clock) as database:
        yield Site(database, clock)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a receiver that says 200."""
    with running_receiver() as running:
        yield running


# -- signatures and messages -------------------------------------------------------------------------


def test_the_signature_is_that_of_the_specification() -> None:
    """Example of the specification's own libraries (standard-webhooks/standard-webhooks)."""
    headers = signature_headers(
        signing=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        sent_at=datetime.fromtimestamp(1614265330, UTC),
        body=b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_secrets_differ_and_a_broken_one_is_refused() -> None:
    assert new_secret() != new_secret()
    with pytest.raises(ValueError, match="base64"):
        signature_headers(signing=["whsec_?"], message_id="m", sent_at=datetime.now(UTC), body=b"")


def test_a_message_stays_small_whatever_the_event_holds() -> None:
    happening = Happening(
        event_id=3,
        kind="worker.silent",
        at=datetime(2026, 1, 1, tzinfo=UTC),
        names={"project": "default", "run": None},
        data={"detail": "\u20ac" * 30_000, "event_id": "not the event's"},
    )
    body = message_body(happening)
    assert len(body) < MAX_BODY_BYTES
    assert json.loads(body)["data"] == {"event_id": 3, "project": "default", "is_truncated": True}


def test_delays_grow_over_more_than_a_day_and_end() -> None:
    chance = random.Random(1)  # noqa: S311 - jitter
    delays = [delay_s_after(number, chance=chance) for number in range(1, len(DELAYS_S) + 2)]
    assert delays[-1] is None
    assert sum(DELAYS_S) > 86_400
    for delay, middle in zip(delays[:-1], DELAYS_S, strict=True):
        assert delay is not None
        assert middle * (1 - JITTER) <= delay <= middle * (1 + JITTER)


# -- where a webhook may go --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "ftp://example.com/hook",
        "https://user:password@example.com/",
        "https:///nowhere",
        "https://example.com/#part",
        "https://example.com:99999/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:10.0.0.1]/",
        "https://10.1.2.3/",
        "https://exa mple.com/",
        "https://example.com\\@10.0.0.1/",
        "https://example.com/" + "x" * 3000,
        "http://10.0.0.5/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.0.1./",
        "https://[::7f00:1]/",
    ],
)
def test_a_url_that_leads_inside_or_shows_everything_is_refused(url: str) -> None:
    assert url_problems(url, allowed_networks=())


def test_plain_http_goes_to_this_machine_alone_and_only_where_allowed() -> None:
    assert url_problems("http://127.0.0.1:9/", allowed_networks=(LOOPBACK,)) == ()
    assert url_problems("http://127.0.0.1:9/", allowed_networks=())
    assert url_problems("http://10.0.0.5/", allowed_networks=("10.0.0.0/8",))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1",  # noqa: S104 - refused
        "169.254.169.254", "100.100.100.200", "168.63.129.16", "::1", "fe80::1%eth0", "fd00:ec2::254",
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "ff02::1", "255.255.255.255",
        "::127.0.0.1", "::ffff:0:127.0.0.1", "fec0::1", "::", "4000::1",
    ],
)  # fmt: skip
def test_no_address_inside_is_sent_to(address: str) -> None:
    assert address_problem(address, is_plain=False, allowed_networks=())


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "168.63.129.16"])
def test_a_metadata_service_cannot_be_allowed(address: str) -> None:
    everything = ("0.0.0.0/0", "::/0")
    assert address_problem(address, is_plain=False, allowed_networks=everything)


def test_public_and_allowed_addresses_are_sent_to() -> None:
    assert address_problem("93.184.216.34", is_plain=False, allowed_networks=()) is None
    assert address_problem("2606:4700::1111", is_plain=False, allowed_networks=()) is None
    assert address_problem("10.1.2.3", is_plain=False, allowed_networks=("10.1.0.0/16",)) is None


def _post(sender: Sender, url: str) -> Outcome:
    return asyncio.run(sender.post(url, headers={}, body=b"{}"))


def test_a_name_is_judged_by_where_it_leads(receiver: Receiver) -> None:
    port = receiver.url.rpartition(":")[2]
    asked: list[tuple[str, int]] = []

    async def inside(host: str, number: int) -> Sequence[str]:
        asked.append((host, number))
        return ["93.184.216.34", "127.0.0.1"]

    outcome = _post(
        Sender(allowed_networks=(), timeout_s=5.0, resolve=inside), f"https://hooks.example.com:{port}/"
    )
    assert asked == [("hooks.example.com", int(port))]
    assert outcome.status is None
    assert outcome.error is not None
    assert "127.0.0.1 is private" in outcome.error
    assert receiver.received == []


def test_the_address_judged_is_the_one_connected_to(receiver: Receiver) -> None:
    """The name resolves nowhere: only the address from the one look-up can have been used."""
    port = receiver.url.rpartition(":")[2]

    async def once(host: str, _port: int) -> Sequence[str]:
        assert host == "localhost"
        return ["127.0.0.1"]

    sender = Sender(allowed_networks=(LOOPBACK,), timeout_s=5.0, resolve=once)
    assert _post(sender, f"http://localhost:{port}/hook?x=1") == Outcome(status=200, error=None)
    (request,) = receiver.received
    assert request.path == "/hook?x=1"
    assert request.headers["host"] == f"localhost:{port}"


def test_a_redirect_is_a_failure_and_not_followed() -> None:
    with running_receiver([302]) as receiver:
        outcome = _post(Sender(allowed_networks=(LOOPBACK,), timeout_s=5.0), receiver.url)
        assert outcome.status == 302
        assert outcome.error is not None
        assert "not followed" in outcome.error
        assert [request.path for request in receiver.received] == ["/"]


def test_a_receiver_that_hangs_costs_its_time_and_no_more() -> None:
    with running_receiver([HANG]) as receiver:
        outcome = _post(Sender(allowed_networks=(LOOPBACK,), timeout_s=0.3), receiver.url)
    assert outcome == Outcome(status=None, error="no answer within 0.3 s")


def test_nobody_there_is_an_outcome() -> None:
    outcome = _post(Sender(allowed_networks=(LOOPBACK,), timeout_s=2.0), "http://127.0.0.1:1/")
    assert outcome.status is None
    assert outcome.error is not None


# -- the outbox --------------------------------------------------------------------------------------


def test_an_event_arrives_signed_and_names_what_it_is_about(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    event_id = site.happen(EventKind.CHECKPOINT_VERDICT_CHANGED, verdict="INVALID")
    site.spread()
    assert site.deliverer.deliver_due() == 1
    (request,) = receiver.received
    assert request.is_signed_with(made.secret)
    assert not request.is_signed_with(new_secret())
    assert json.loads(request.body) == {
        "type": "checkpoint.verdict.changed",
        "timestamp": "2026-11-29T12:00:00.000000Z",
        "data": {
            "verdict": "INVALID",
            "event_id": event_id,
            "project": "default",
            "run": "run-7",
            "checkpoint_id": site.checkpoint_id,
            "step": 1200,
            "save_id": json.loads(request.body)["data"]["save_id"],
            "is_truncated": False,
        },
    }
    (delivery,) = site.log(made.row.id)
    assert (delivery.row.state, delivery.row.tries, delivery.row.next_at) == ("delivered", 1, None)
    assert site.deliverer.deliver_due() == 0


def test_only_what_was_asked_for_and_happened_since_is_delivered(site: Site, receiver: Receiver) -> None:
    site.happen(EventKind.RUN_UNPROTECTED)  # before
    made = site.webhook(receiver.url, EventKind.RUN_UNPROTECTED)
    site.happen(EventKind.WORKER_SILENT)  # not asked for
    with site.database.write() as tx:  # another project's
        other = Subject(project_id=add_project(tx, "other"))
        record(tx, EventKind.RUN_UNPROTECTED, actor=SERVICE, about=other)
    wanted = site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    assert [entry.row.event_id for entry in site.log(made.row.id)] == [wanted]


def test_an_event_about_no_project_concerns_every_one(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    with site.database.write() as tx:
        record(tx, EventKind.WORKER_SILENT, actor=SERVICE)
    site.spread()
    assert len(site.log(made.row.id)) == 1


def test_going_over_the_same_events_again_adds_no_row(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    with site.database.write() as tx:
        fan_out(tx, 0)
    assert len(site.log(made.row.id)) == 1


def test_failures_are_tried_again_later_and_then_given_up(site: Site) -> None:
    with running_receiver([500] * 100) as receiver:
        made = site.webhook(receiver.url)
        site.happen(EventKind.RUN_UNPROTECTED)
        site.spread()
        for delay_s in DELAYS_S:
            assert site.deliverer.deliver_due() == 1
            assert site.deliverer.deliver_due() == 0  # not before its time
            site.clock.advance(delay_s * (1 + JITTER))
        assert site.deliverer.deliver_due() == 1
        site.clock.advance(86_400.0)
        assert site.deliverer.deliver_due() == 0
        ids = {request.headers["webhook-id"] for request in receiver.received}
        bodies = {request.body for request in receiver.received}
    (delivery,) = site.log(made.row.id)
    assert delivery.row.state == "given_up"
    assert [entry.number for entry in delivery.tries] == list(range(1, len(DELAYS_S) + 2))
    assert {(entry.status, entry.error) for entry in delivery.tries} == {(500, "HTTP 500")}
    assert len(ids) == len(bodies) == 1


def test_a_success_after_failures_ends_it(site: Site) -> None:
    with running_receiver([503, 503]) as receiver:
        made = site.webhook(receiver.url)
        site.happen(EventKind.RUN_UNPROTECTED)
        site.spread()
        for delay_s in DELAYS_S[:3]:
            site.deliverer.deliver_due()
            site.clock.advance(delay_s * (1 + JITTER))
        (delivery,) = site.log(made.row.id)
    assert [entry.status for entry in delivery.tries] == [503, 503, 200]
    assert delivery.row.state == "delivered"


def test_a_receiver_that_is_gone_is_not_tried_again(site: Site) -> None:
    with running_receiver([410]) as receiver:
        made = site.webhook(receiver.url)
        site.happen(EventKind.RUN_UNPROTECTED)
        site.spread()
        site.deliverer.deliver_due()
    assert site.log(made.row.id)[0].row.state == "given_up"


def test_a_process_that_dies_after_sending_sends_the_same_again(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    (letter,) = site.deliverer.claim()
    asyncio.run(site.deliverer.sender.post(letter.url, headers=letter.headers, body=letter.body))
    # It dies here: nothing is written down, and the claim ends by itself.
    assert site.deliverer.deliver_due() == 0
    site.clock.advance(site.deliverer.hold_s + 1)
    assert site.deliverer.deliver_due() == 1
    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    (delivery,) = site.log(made.row.id)
    assert (delivery.row.state, delivery.row.tries) == ("delivered", 1)


def test_one_that_wakes_up_late_writes_nothing(site: Site) -> None:
    with running_receiver([500]) as receiver:
        made = site.webhook(receiver.url)
        site.happen(EventKind.RUN_UNPROTECTED)
        site.spread()
        (asleep,) = site.deliverer.claim()
        site.clock.advance(site.deliverer.hold_s + 1)
        (other,) = site.deliverer.claim()
        assert not site.deliverer.write_down(asleep, Outcome(status=500, error="HTTP 500"), seconds=1.0)
        assert site.deliverer.write_down(other, Outcome(status=200, error=None), seconds=1.0)
        assert not site.deliverer.write_down(other, Outcome(status=500, error="again"), seconds=1.0)
    (delivery,) = site.log(made.row.id)
    assert (delivery.row.state, delivery.row.tries, len(delivery.tries)) == ("delivered", 1, 1)


def test_a_receiver_that_hangs_keeps_no_other_waiting(site: Site, receiver: Receiver) -> None:
    with running_receiver([HANG] * 50) as hanging:
        site.deliverer.sender = Sender(allowed_networks=(LOOPBACK,), timeout_s=1.5)
        site.webhook(hanging.url)
        site.webhook(receiver.url)
        for _ in range(BATCH_PER_WEBHOOK * 20):
            site.happen(EventKind.RUN_UNPROTECTED)
        site.spread()
        site.deliverer.deliver_due()
        assert len(receiver.received) == BATCH_PER_WEBHOOK
        assert len(hanging.received) == BATCH_PER_WEBHOOK


def test_two_processes_never_claim_the_same(site: Site, receiver: Receiver) -> None:
    for _ in range(3):
        site.webhook(receiver.url)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    first = {letter.held.id for letter in site.deliverer.claim()}
    second = {letter.held.id for letter in site.deliverer.claim()}
    assert len(first) == 3
    assert second == set()


# -- what an operator does ---------------------------------------------------------------------------


def test_both_secrets_sign_until_the_next_rotation(site: Site, receiver: Receiver) -> None:
    first = site.webhook(receiver.url)
    by = {"project_id": site.project_id, "by": SERVICE}
    second = use_cases.rotate_secret(site.services, first.row.id, **by)  # type: ignore[arg-type]
    use_cases.test_webhook(site.services, first.row.id, **by)  # type: ignore[arg-type]
    site.deliverer.deliver_due()
    third = use_cases.rotate_secret(site.services, first.row.id, **by)  # type: ignore[arg-type]
    use_cases.test_webhook(site.services, first.row.id, **by)  # type: ignore[arg-type]
    site.deliverer.deliver_due()
    signed = [
        [request.is_signed_with(made.secret) for made in (first, second, third)]
        for request in receiver.received
    ]
    assert signed == [[True, True, False], [False, True, True]]


def test_a_test_comes_to_this_webhook_whatever_it_asked_for(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url, EventKind.WORKER_SILENT)
    other = site.webhook(receiver.url)
    use_cases.test_webhook(site.services, made.row.id, project_id=site.project_id, by=SERVICE)
    site.spread()
    site.deliverer.deliver_due()
    assert [json.loads(request.body)["type"] for request in receiver.received] == ["webhook.test"]
    assert site.log(other.row.id) == []


def test_redelivering_sends_the_same_message_again(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    site.deliverer.deliver_due()
    (before,) = site.log(made.row.id)
    use_cases.redeliver(site.services, before.row.id, project_id=site.project_id, by=SERVICE)
    assert site.deliverer.deliver_due() == 1
    (after,) = site.log(made.row.id)
    assert [entry.number for entry in after.tries] == [1, 2]
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1


def test_a_removed_webhook_gets_nothing_more_and_forgets_its_secrets(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    use_cases.remove_webhook(site.services, made.row.id, project_id=site.project_id, by=SERVICE)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    site.clock.advance(10.0)
    assert site.deliverer.deliver_due() == 0
    assert receiver.received == []
    assert use_cases.webhooks_of(site.services, project_id=site.project_id) == []
    with pytest.raises(NotFoundError):
        site.log(made.row.id)


def test_webhooks_of_another_project_are_not_found(site: Site, receiver: Receiver) -> None:
    made = site.webhook(receiver.url)
    with site.database.write() as tx:
        other_id = add_project(tx, "other")
    with pytest.raises(NotFoundError):
        use_cases.test_webhook(site.services, made.row.id, project_id=other_id, by=SERVICE)
    with pytest.raises(NotFoundError):
        use_cases.remove_webhook(site.services, made.row.id, project_id=other_id, by=SERVICE)


def test_every_problem_of_a_webhook_is_told_at_once(site: Site) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        use_cases.create_webhook(
            site.services,
            project_id=site.project_id,
            url="ftp://u:p@10.0.0.1/",
            kinds=["run.unprotected", "token.created", "nonsense"],
            by=SERVICE,
        )
    assert len(caught.value.problems) == 5
    assert use_cases.webhooks_of(site.services, project_id=site.project_id) == []


def test_a_project_has_so_many_webhooks_and_no_more(site: Site) -> None:
    for _ in range(MAX_WEBHOOKS):
        site.webhook("https://example.com/hook")
    with pytest.raises(ConflictError):
        site.webhook("https://example.com/hook")


def test_the_tables_hold_no_second_delivery_of_an_event(site: Site, receiver: Receiver) -> None:
    site.webhook(receiver.url)
    site.happen(EventKind.RUN_UNPROTECTED)
    site.spread()
    with site.database.read() as tx:
        row = tx.execute(select(deliveries)).one()
    values = {name: value for name, value in row._mapping.items() if name != "id"} | {"message_id": "other"}
    with pytest.raises(ConflictError), site.database.write() as tx:
        tx.execute(deliveries.insert().values(values))
    with site.database.read() as tx:
        assert tx.execute(select(func.count()).select_from(delivery_tries)).scalar_one() == 0

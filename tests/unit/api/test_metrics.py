"""Metrics: what they say, what they cost, and that an operator can read about each of them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from sqlalchemy import event, insert, update

from ckptguard.model.service import EventKind, Scope, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.subject import Subject
from ckptguard_api.metrics import REMEMBERED_S, Metrics
from ckptguard_api.repositories.events import record
from ckptguard_api.settings import Settings
from ckptguard_api.tables import delivery_tries, runs
from ckptguard_api.use_cases.webhooks import create_webhook
from tests.databases import fresh_database
from tests.served_app import served_app
from tests.service_rows import (
    add_checkpoint,
    add_finding,
    add_project,
    add_run,
    add_store,
    add_validation,
    add_verdict,
    add_worker,
)

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
START = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that tests move."""
    return FakeClock(START)


@pytest.fixture(params=["sqlite", "postgresql"])
def timed(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    """Return a database of each kind that lives by the test's clock."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    with fresh_database(request.param, folder=tmp_path, postgres=server, clock=clock) as database:
        yield database


def samples_of(metrics: Metrics) -> Samples:
    """Return every sample of a scrape, as a Prometheus parser reads it."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Return one sample; None: it is not there."""
    return samples.get((f"ckptguard_{name}", frozenset(labels.items())))


def test_exposure_is_that_of_the_design(timed: Database, clock: FakeClock) -> None:
    """8,000 GPUs, six hours, $3.00: $144,000."""
    with timed.write() as tx:
        project_id = add_project(tx)
        run_id = add_run(tx, project_id, gpus=8000, usd_per_gpu_hour=3.0)
        store_id = add_store(tx, project_id)
        add_checkpoint(tx, run_id, store_id, step=1000, verdict=Verdict.VALID, created_at=START - 6 * HOUR)
        add_checkpoint(tx, run_id, store_id, step=1500, verdict=Verdict.INVALID)
    samples = samples_of(Metrics(timed, Settings(), clock=clock))
    labels = {"project": "default", "run": "run-7"}
    assert value(samples, "run_exposure_usd", **labels) == 144_000.0
    assert value(samples, "run_exposure_gpu_hours", **labels) == 48_000.0
    assert value(samples, "run_unprotected_seconds", **labels) == 21_600.0
    assert value(samples, "run_unprotected_steps", **labels) == 500.0
    assert value(samples, "run_has_valid", **labels) == 1.0


def test_what_is_not_known_is_not_shown_as_zero(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        run_id = add_run(tx, project_id)
        add_checkpoint(tx, run_id, add_store(tx, project_id), step=1)
    samples = samples_of(Metrics(timed, Settings(), clock=clock))
    labels = {"project": "default", "run": "run-7"}
    assert value(samples, "run_has_valid", **labels) == 0.0
    for name in ("unprotected_seconds", "unprotected_steps", "exposure_gpu_hours", "exposure_usd"):
        assert value(samples, f"run_{name}", **labels) is None


def test_a_run_that_somebody_must_look_at_is_shown(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        run_id = add_run(tx, project_id)
        add_checkpoint(tx, run_id, add_store(tx, project_id), step=1)
        tx.execute(update(runs).values(restarts_failing_at=tx.now, step_went_back_at=tx.now))
    samples = samples_of(Metrics(timed, Settings(), clock=clock))
    assert value(samples, "run_restarts_failing", project="default", run="run-7") == 1.0
    assert value(samples, "run_step_went_back", project="default", run="run-7") == 1.0


def test_only_active_runs_are_shown_and_never_too_many(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        store_id = add_store(tx, project_id)
        for number in range(6):
            run_id = add_run(tx, project_id, f"run-{number}")
            add_checkpoint(tx, run_id, store_id, step=1, created_at=START - number * timedelta(days=2))
        add_run(tx, project_id, "never saved")
    settings = Settings(metrics_active_days=7.0, metrics_max_runs=3)
    samples = samples_of(Metrics(timed, settings, clock=clock))
    shown = {dict(labels)["run"] for name, labels in samples if name == "ckptguard_run_has_valid"}
    assert shown == {"run-0", "run-1", "run-2"}


def test_verdicts_bytes_and_losses_are_counted_from_the_first_scrape_on(
    timed: Database, clock: FakeClock
) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        run_id = add_run(tx, project_id)
        checkpoint_id = add_checkpoint(tx, run_id, add_store(tx, project_id), step=1)
    metrics = Metrics(timed, Settings(), clock=clock)
    samples_of(metrics)
    with timed.write() as tx:
        for verdict in (Verdict.INVALID, Verdict.VALID, Verdict.INVALID):
            validation_id = add_verdict(tx, checkpoint_id, verdict)
            if verdict is Verdict.INVALID:
                add_finding(tx, validation_id, code="crc_mismatch")
                add_finding(tx, validation_id, code="checksum_mismatch")
            about = Subject(validation_id=validation_id)
            record(tx, EventKind.VALIDATION_FINISHED, actor=SERVICE, about=about)
        for ending in ("expired", "drained", "expired", "stalled"):
            record(tx, EventKind.VALIDATION_ATTEMPT_ENDED, actor=SERVICE, data={"ending": ending})
    assert value(samples_of(metrics), "validated_bytes_total") == 0.0, "remembered for a moment"
    for _ in range(2):
        clock.advance(REMEMBERED_S)
        samples = samples_of(metrics)
        damage = {"verdict": "INVALID", "basis": "damage", "code": "crc_mismatch"}
        assert value(samples, "verdicts_total", **damage) == 2.0
        assert value(samples, "verdicts_total", verdict="VALID", basis="", code="") == 1.0
        assert value(samples, "validated_bytes_total") == 3 * 4096
        assert value(samples, "validation_reading_seconds_total") == 3.0
        assert value(samples, "lease_losses_total", ending="expired") == 2.0
        assert value(samples, "lease_losses_total", ending="stalled") == 1.0


def test_the_queue_is_shown_by_tier(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        run_id, store_id = add_run(tx, project_id), add_store(tx, project_id)
        for step, columns in enumerate(
            (
                {"tier": 1, "requested_at": START - HOUR},
                {"tier": 1},
                {"tier": 3, "state": ValidationState.RUNNING},
                {"tier": 2, "waited_until": START + HOUR},
                {"tier": 2, "state": ValidationState.FINISHED},
            )
        ):
            checkpoint_id = add_checkpoint(tx, run_id, store_id, step=step)
            add_validation(tx, checkpoint_id, **columns)  # type: ignore[arg-type]
    samples = samples_of(Metrics(timed, Settings(), clock=clock))
    assert value(samples, "queue_validations", tier="1", state="queued") == 2.0
    assert value(samples, "queue_oldest_seconds", tier="1", state="queued") == 3600.0
    assert value(samples, "queue_validations", tier="3", state="running") == 1.0
    assert value(samples, "queue_validations", tier="0", state="queued") == 1.0
    assert value(samples, "queue_validations", tier="2", state="queued") is None


def test_workers_have_ages_and_states(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        add_worker(tx, "busy")
        add_worker(tx, "quiet", seen_at=START - HOUR)
        add_worker(tx, "leaving", is_draining=True)
        add_worker(tx, "long gone", seen_at=START - 48 * HOUR)
    samples = samples_of(Metrics(timed, Settings(), clock=clock))
    assert value(samples, "worker_unheard_seconds", worker="quiet") == 3600.0
    assert value(samples, "worker_unheard_seconds", worker="long gone") is None
    states = {state: value(samples, "workers", state=state) for state in ("active", "silent", "draining")}
    assert states == {"active": 1.0, "silent": 1.0, "draining": 1.0}


def test_deliveries_are_shown(timed: Database, clock: FakeClock) -> None:
    from ckptguard_api.repositories.deliveries import add_delivery  # noqa: PLC0415 - this test alone
    from ckptguard_api.services import Services  # noqa: PLC0415 - this test alone

    with timed.write() as tx:
        project_id = add_project(tx)
    services = Services(database=timed, settings=Settings())
    made = create_webhook(services, project_id=project_id, url="https://example.com/", kinds=(), by=SERVICE)
    metrics = Metrics(timed, Settings(), clock=clock)
    samples_of(metrics)
    with timed.write() as tx:
        event = record(tx, EventKind.RUN_UNPROTECTED, actor=SERVICE)
    with timed.write() as tx:
        delivery_id = add_delivery(tx, made.row.id, event.id)
        tried = {"delivery_id": delivery_id, "at": tx.now, "seconds": 0.1}
        tx.execute(insert(delivery_tries).values(**tried, number=1, status=500, error="HTTP 500"))
        tx.execute(insert(delivery_tries).values(**tried, number=2, status=200, error=None))
    clock.advance(REMEMBERED_S)
    samples = samples_of(metrics)
    assert value(samples, "webhook_deliveries", state="pending") == 1.0
    assert value(samples, "webhook_deliveries", state="given_up") == 0.0
    assert value(samples, "webhook_tries_total", outcome="failed") == 1.0
    assert value(samples, "webhook_tries_total", outcome="delivered") == 1.0


def test_a_scrape_asks_the_database_a_fixed_number_of_times(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        store_id = add_store(tx, project_id)
        for number in range(30):
            add_checkpoint(tx, add_run(tx, project_id, f"run-{number}"), store_id, step=1)
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(timed.engine, "before_cursor_execute", note)
    metrics = Metrics(timed, Settings(), clock=clock)
    for _ in range(50):
        samples_of(metrics)
    event.remove(timed.engine, "before_cursor_execute", note)
    assert 0 < len(statements) < 15


def test_with_the_database_down_nothing_old_is_shown(clock: FakeClock) -> None:
    down = Database("sqlite:////nowhere/there.sqlite", clock=clock)
    samples = samples_of(Metrics(down, Settings(), clock=clock))
    assert {name for name, _ in samples} == {"ckptguard_database_up"}
    assert set(samples.values()) == {0.0}
    down.close()


def test_requests_are_counted_by_route_and_never_by_path(database: Database) -> None:
    with served_app(database) as served:
        client = served.client()
        for path in (
            "/healthz",
            "/v1/webhooks/12/deliveries",
            "/v1/webhooks/13/deliveries",
            "/nowhere/at/all",
        ):
            client.get(path)
        text = client.get("/metrics").text
    counts = {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "ckptguard_http_request_duration_seconds_count"
    }
    by_route = {(dict(labels)["route"], dict(labels)["status"]): count for labels, count in counts.items()}
    assert by_route["/v1/webhooks/{webhook_id}/deliveries", "404"] == 2.0
    assert by_route["none", "404"] >= 1.0
    assert not [route for route, _ in by_route if "12" in route or "nowhere" in route]


def test_what_is_no_method_is_counted_as_one_thing(clock: FakeClock) -> None:
    database = Database("sqlite://", clock=clock)
    metrics = Metrics(database, Settings(), clock=clock)
    for method in ("BREW", "STEEP"):
        metrics.observe_request(method=method, route=None, status=None, seconds=0.1)
    count = value(
        samples_of(metrics),
        "http_request_duration_seconds_count",
        method="other",
        route="none",
        status="none",
    )
    assert count == 2.0
    database.close()


def test_metrics_need_a_token_of_all_projects_unless_they_are_public(database: Database) -> None:
    with served_app(database) as served:
        anonymous = served.client()
        del anonymous.headers["Authorization"]
        assert anonymous.get("/metrics").status_code == 401
        assert served.client(Scope.WORK).get("/metrics").status_code == 403
        assert served.client(Scope.READ, project="default").get("/metrics").status_code == 403
        answer = served.client(Scope.READ).get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")


def test_public_metrics_need_none(database: Database) -> None:
    url = SecretStr(database.engine.url.render_as_string(hide_password=False))
    settings = Settings(database_url=url, metrics_public=True)
    with served_app(database, settings=settings) as served:
        client = served.client()
        del client.headers["Authorization"]
        assert client.get("/metrics").status_code == 200


def test_every_metric_is_documented_and_every_documented_one_exists(database: Database) -> None:
    with database.write() as tx:
        project_id = add_project(tx)
        add_checkpoint(tx, add_run(tx, project_id), add_store(tx, project_id), step=1)
    metrics = Metrics(database, Settings())
    metrics.observe_request(method="GET", route="/", status=200, seconds=0.1)
    families = text_string_to_metric_families(metrics.render().decode())
    # `…_created` belongs to its histogram.
    exported = {family.name for family in families if not family.name.endswith("_created")}
    documented = set(re.findall(r"^\| `(ckptguard_\w+)`", OPERATIONS.read_text(), flags=re.MULTILINE))
    counters = {"verdicts", "lease_losses", "webhook_tries", "validated_bytes", "validation_reading_seconds"}
    shown = {f"{name}_total" if name.removeprefix("ckptguard_") in counters else name for name in exported}
    assert documented == shown


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"^\| `(CKPTGUARD_\w+)`", OPERATIONS.read_text(), flags=re.MULTILINE))
    assert documented >= {f"CKPTGUARD_{name.upper()}" for name in Settings.model_fields}

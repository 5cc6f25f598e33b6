"""OpenTelemetry: nothing unless asked for; then a span a request, and one a validation."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import insert

from ckptguard.errors import ConfigError
from ckptguard.model.service import EventKind
from ckptguard.model.verdict import Verdict
from ckptguard_api import tracing as tracing_module
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories.events import record
from ckptguard_api.tables import attempts, verdicts
from ckptguard_api.tracing import TracedRequests, Tracing, TracingSettings, tracing_of_environment
from ckptguard_api.use_cases.trace import tracing_work
from tests.served_app import served_app
from tests.service_rows import add_checkpoint, add_project, add_run, add_store, add_verdict, add_worker
from tests.webhook_receiver import running_receiver

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Return where spans are kept."""
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing:
    """Return a tracing that keeps its spans."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider=provider)


def test_nothing_is_traced_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert tracing_of_environment() is None
    asked = TracingSettings(exporter_otlp_endpoint="http://127.0.0.1:1", sdk_disabled=True)
    assert tracing_of_environment(asked) is None


def test_asking_without_the_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "_EXPORTER", "opentelemetry.exporter.not_there.at_all")
    with pytest.raises(ConfigError, match=r"ckptguard\[otel\]"):
        tracing_of_environment(TracingSettings(exporter_otlp_endpoint="http://127.0.0.1:1"))


def test_spans_arrive_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        tracing = tracing_of_environment()
        assert tracing is not None
        now = datetime.now(UTC)
        tracing.add_span("validation", began_at=now, ended_at=now, attributes={})
        tracing.close()
        (request,) = receiver.received
    assert request.path == "/v1/traces"
    assert b"ckptguard" in request.body


def test_a_request_is_a_span_below_its_callers(
    database: Database, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    with served_app(database) as served:
        served.app.middleware_stack = TracedRequests(_built(served.app), tracing=tracing)
        client = served.client()
        client.get("/v1/webhooks/12/deliveries", headers={"traceparent": CALLER})
    span = one(spans, lambda span: "webhooks" in span.name)
    assert span.name == "GET /v1/webhooks/{webhook_id}/deliveries"
    assert span.attributes["http.response.status_code"] == 404
    assert span.attributes["ckptguard.request_id"]
    assert f"{span.context.trace_id:032x}" == CALLER.split("-")[1]


def test_a_validation_is_a_span_as_long_as_its_attempt(
    database: Database, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    work = tracing_work(tracing)
    with database.write() as tx:
        project_id = add_project(tx)
        run_id = add_run(tx, project_id)
        checkpoint_id = add_checkpoint(tx, run_id, add_store(tx, project_id), step=1)
        old = record(tx, EventKind.RUN_CREATED, actor=SERVICE)
        validation_id = add_verdict(tx, checkpoint_id, Verdict.VALID)
        began_at = tx.now - timedelta(seconds=90)
        values = {"number": 1, "token_hash": "h", "is_counted": True, "new_files": 0, "bytes_read": 0}
        values |= {"validation_id": validation_id, "worker_id": add_worker(tx), "started_at": began_at}
        attempt = tx.execute(insert(attempts).values(values).returning(attempts.c.id)).scalar_one()
        tx.execute(verdicts.update().values(attempt_id=attempt, given_at=tx.now))
    with database.write() as tx:
        first = work(tx, 0)
        assert first.cursor == old.id, "what happened before tracing was turned on is not told"
    with database.write() as tx:
        record(tx, EventKind.VALIDATION_FINISHED, actor=SERVICE, about=Subject(validation_id=validation_id))
    with database.write() as tx:
        second = work(tx, first.cursor)
        assert work(tx, second.cursor) == second
    (span,) = spans.get_finished_spans()
    assert span.end_time is not None
    assert span.start_time is not None
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(90.0, abs=0.01)
    assert dict(span.attributes or {})["ckptguard.verdict"] == "VALID"


def _built(app: Any) -> Any:  # noqa: ANN401 - Starlette's
    return app.middleware_stack or app.build_middleware_stack()


def one(spans: InMemorySpanExporter, condition: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - a span
    """Wait for a span: it ends after the answer was sent."""
    deadline = time.monotonic() + 60.0
    while True:
        found = [span for span in spans.get_finished_spans() if condition(span)]
        if found:
            return found[0]
        assert time.monotonic() < deadline, "no such span"
        time.sleep(0.01)

"""Prometheus metrics of one API process; docs/operations.md says what each means, and what to do.

Whatever comes from the database is read at the scrape, in one short read that is remembered for some
seconds. Every process shows the same: take `max without (instance)`, never a sum. Only
`ckptguard_http_request_duration_seconds` is a process's own.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import Row

from ckptguard import __version__
from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import ServiceUnavailableError
from ckptguard.model.service import AttemptEnding, EventKind
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.exposure import Exposure, SavePoint, exposure_of
from ckptguard_api.repositories import measures
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings

REMEMBERED_S: Final = 5.0
MAX_WORKERS: Final = 1_000
_WORKERS_KEPT_S: Final = 86_400.0
_LOST: Final = frozenset({AttemptEnding.EXPIRED.value, AttemptEnding.STALLED.value})
_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)
_METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "PUT"})


@dataclass(kw_only=True)
class Counted:
    """What was counted since this process looked first.

    Args:
        event_id: The last event that was counted; None: it did not look yet.
        try_id: The last try of a delivery that was counted.
    """

    event_id: int | None = None
    try_id: int = 0
    verdicts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    tries: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    seconds_reading: float = 0.0

    def catch_up(self, tx: Transaction) -> None:
        """Count what happened since the last look; at the first, remember only where to begin."""
        if self.event_id is None:
            self.event_id, self.try_id = measures.last_ids(tx)
            return
        self._count_events(tx, measures.new_events(tx, self.event_id))
        for attempted in measures.new_tries(tx, self.try_id):
            self.tries["delivered" if attempted.error is None else "failed"] += 1
            self.try_id = attempted.id

    def _count_events(self, tx: Transaction, found: Iterable[Row[Any]]) -> None:
        found = list(found)
        for verdict in measures.verdicts_with_code(tx, found):
            self.verdicts[verdict.verdict, verdict.basis or "", verdict.code or ""] += 1
            self.bytes_read += verdict.bytes_read
            self.seconds_reading += verdict.seconds_reading
        for event in found:
            if event.kind == EventKind.VALIDATION_ATTEMPT_ENDED and event.data.get("ending") in _LOST:
                self.losses[event.data["ending"]] += 1
            self.event_id = event.id


class DatabaseCollector(Collector):
    """Metrics of what the database holds.

    Args:
        database: Where to read.
        settings: How many runs are shown, and for how long.
        clock: How long an answer is remembered.
    """

    def __init__(self, database: Database, settings: Settings, *, clock: Clock | None = None) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock or SystemClock()
        self._counted = Counted()
        self._lock = threading.Lock()
        self._remembered: list[Metric] = []
        self._read_at_s: float | None = None

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; with the database down, `ckptguard_database_up` 0 alone, nothing old."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._read_at_s is None or now_s - self._read_at_s >= REMEMBERED_S:
                self._remembered = self._read()
                self._read_at_s = now_s
            return self._remembered

    def describe(self) -> Iterable[Metric]:
        """Return nothing: asking the database while the process starts would be too early."""
        return ()

    def _read(self) -> list[Metric]:
        try:
            with self._database.read() as tx:
                self._counted.catch_up(tx)
                found = list(self._gauges(tx))
        except ServiceUnavailableError:
            return [_database_up(is_up=False)]
        return [_database_up(is_up=True), *found, *_counters(self._counted)]

    def _gauges(self, tx: Transaction) -> Iterator[Metric]:
        since = tx.now - timedelta(days=self._settings.metrics_active_days)
        runs = measures.active_runs(tx, saved_since=since, limit=self._settings.metrics_max_runs)
        yield from _run_metrics(runs, tx.now)
        yield from _queue_metrics(measures.open_validations(tx), tx.now)
        seen = measures.workers_heard_since(
            tx, tx.now - timedelta(seconds=_WORKERS_KEPT_S), limit=MAX_WORKERS
        )
        yield from _worker_metrics(seen, tx.now, heard_within_s=self._settings.worker_heard_within_s)
        waiting = GaugeMetricFamily(
            "ckptguard_webhook_deliveries", "Deliveries that were not accepted.", labels=["state"]
        )
        for state, number in measures.waiting_deliveries(tx).items():
            waiting.add_metric([state], number)
        yield waiting


class Metrics:
    """All metrics of one process.

    Args:
        database: Where to read.
        settings: What the operator set.
        clock: How long an answer of the database is remembered.
    """

    def __init__(self, database: Database, settings: Settings, *, clock: Clock | None = None) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(DatabaseCollector(database, settings, clock=clock))
        self._requests = Histogram(
            "ckptguard_http_request_duration_seconds",
            "Time until an answer was complete, waiting included.",
            labelnames=["method", "route", "status"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )

    def observe_request(self, *, method: str, route: str | None, status: int | None, seconds: float) -> None:
        """Count one request.

        Args:
            method: Of HTTP; an unknown one is `other`.
            route: Its template, e.g. `/v1/runs/{run}`, never its path; None: no route took it.
            status: Of the answer; None: the connection ended before.
            seconds: Until the answer was complete.
        """
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route or "none", str(status or "none")).observe(seconds)

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return generate_latest(self.registry)


def install(app: FastAPI, services: Services) -> Metrics:
    """Give an app its metrics; `MeasuredRequests` around it counts its requests.

    Args:
        app: The application.
        services: What its routes share.
    """
    app.state.metrics = Metrics(services.database, services.settings)
    return metrics_of(app)


def metrics_of(app: FastAPI) -> Metrics:
    """Return what `install` gave."""
    own: Metrics = app.state.metrics
    return own


def _database_up(*, is_up: bool) -> Metric:
    version = GaugeMetricFamily(
        "ckptguard_database_up", "1 where the database answered this scrape.", labels=["version"]
    )
    version.add_metric([__version__], float(is_up))
    return version


def _run_metrics(runs: Iterable[Row[Any]], now: datetime) -> Iterator[Metric]:
    labels = ["project", "run"]
    families = {
        "has_valid": "1 where a resume finds a checkpoint that the run's policy accepts.",
        "unprotected_seconds": "Since the newest checkpoint that a resume may use was saved.",
        "unprotected_steps": "Saved after that checkpoint, and not proven.",
        "exposure_gpu_hours": "Unprotected time on all GPUs of the run.",
        "exposure_usd": "Their price: what a failure right now would cost.",
        "restarts_failing": "1 while restarts fail from more than one checkpoint.",
        "step_went_back": "1 after a step went back that no resume reported.",
    }
    made = {
        name: GaugeMetricFamily(f"ckptguard_run_{name}", text, labels=labels)
        for name, text in families.items()
    }
    for run in runs:
        for name, value in _values_of(run, now).items():
            if value is not None:
                made[name].add_metric([run.project, run.name], value)
    yield from made.values()


def _values_of(run: Row[Any], now: datetime) -> dict[str, float | None]:
    exposure = _exposure_of(run, now)
    return {
        "has_valid": float(run.valid_at is not None),
        "unprotected_seconds": exposure.seconds,
        "unprotected_steps": exposure.steps,
        "exposure_gpu_hours": exposure.gpu_hours,
        "exposure_usd": exposure.usd,
        "restarts_failing": float(run.restarts_failing_at is not None),
        "step_went_back": float(run.step_went_back_at is not None),
    }


def _exposure_of(run: Row[Any], now: datetime) -> Exposure:
    has_valid = run.valid_at is not None
    return exposure_of(
        now=now,
        newest_valid=SavePoint(step=run.valid_step, created_at=run.valid_at) if has_valid else None,
        newest_step=run.saved_step,
        gpus=run.gpus,
        usd_per_gpu_hour=run.usd_per_gpu_hour,
    )


def _queue_metrics(groups: Iterable[Row[Any]], now: datetime) -> Iterator[Metric]:
    number = GaugeMetricFamily(
        "ckptguard_queue_validations", "Validations queued or running.", labels=["tier", "state"]
    )
    oldest = GaugeMetricFamily(
        "ckptguard_queue_oldest_seconds", "Age of the oldest of them.", labels=["tier", "state"]
    )
    for group in groups:
        labels = [str(group.tier), group.state]
        number.add_metric(labels, group.number)
        oldest.add_metric(labels, max(0.0, (now - group.oldest).total_seconds()))
    yield number
    yield oldest


def _worker_metrics(seen: Iterable[Row[Any]], now: datetime, *, heard_within_s: float) -> Iterator[Metric]:
    ages = GaugeMetricFamily(
        "ckptguard_worker_unheard_seconds", "Since a worker was heard of.", labels=["worker"]
    )
    numbers = dict.fromkeys(("active", "draining", "silent"), 0)
    for worker in seen:
        age_s = max(0.0, (now - worker.seen_at).total_seconds())
        ages.add_metric([worker.name], age_s)
        is_silent = age_s > heard_within_s
        numbers["draining" if worker.is_draining else "silent" if is_silent else "active"] += 1
    yield ages
    states = GaugeMetricFamily("ckptguard_workers", "Workers heard of within a day.", labels=["state"])
    for state, number in numbers.items():
        states.add_metric([state], number)
    yield states


def _counters(counted: Counted) -> Iterator[Metric]:
    verdicts = CounterMetricFamily(
        "ckptguard_verdicts", "Verdicts given, with the first finding that decided.",
        labels=["verdict", "basis", "code"],
    )  # fmt: skip
    for labels, number in sorted(counted.verdicts.items()):
        verdicts.add_metric(list(labels), number)
    losses = CounterMetricFamily(
        "ckptguard_lease_losses", "Leases that ended because a worker fell silent or stood still.",
        labels=["ending"],
    )  # fmt: skip
    for ending in sorted(_LOST):
        losses.add_metric([ending], counted.losses[ending])
    tries = CounterMetricFamily("ckptguard_webhook_tries", "Times a delivery was sent.", labels=["outcome"])
    for outcome in ("delivered", "failed"):
        tries.add_metric([outcome], counted.tries[outcome])
    read = CounterMetricFamily(
        "ckptguard_validated_bytes", "Bytes read by validations that ended.", value=counted.bytes_read
    )
    seconds = CounterMetricFamily(
        "ckptguard_validation_reading_seconds", "Time they took to read them.", value=counted.seconds_reading
    )
    yield from (verdicts, losses, tries, read, seconds)

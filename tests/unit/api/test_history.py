"""Lists show exactly what passes their filters, newest first, page after page, at a bounded cost."""

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Row, insert
from sqlalchemy.sql.compiler import SQLCompiler

from ckptguard.errors import InvalidRequestError, LimitExceededError, NotFoundError
from ckptguard.model.service import EventKind, Hold, Lifecycle, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Database
from ckptguard_api.domain import evidence_files as evidence_module
from ckptguard_api.domain import unpacking
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.checkpoint_filter import CheckpointFilter
from ckptguard_api.domain.evidence_files import evidence_files
from ckptguard_api.repositories import windows
from ckptguard_api.repositories.checkpoint_list import checkpoint_listing
from ckptguard_api.tables import evidence
from ckptguard_api.use_cases import history
from ckptguard_api.use_cases.audit import AuditFilter, list_audit
from ckptguard_api.use_cases.holds import hold_checkpoint
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.started_run import RESUMED, Training

START = datetime(2026, 11, 29, tzinfo=UTC)
SEED = 20261129

FILTERS: tuple[CheckpointFilter, ...] = (
    CheckpointFilter(),
    CheckpointFilter(verdict=Verdict.VALID),
    CheckpointFilter(verdict=Verdict.INVALID),
    CheckpointFilter(verdict="none"),
    CheckpointFilter(assurance=Assurance.CONTENT),
    CheckpointFilter(lifecycle=Lifecycle.SUPERSEDED),
    CheckpointFilter(hold=Hold.PINNED),
    CheckpointFilter(hold=Hold.QUARANTINED, verdict=Verdict.VALID),
    CheckpointFilter(hold=Hold.SUSPECT, lifecycle=Lifecycle.REGISTERED),
    CheckpointFilter(state=ValidationState.QUEUED),
    CheckpointFilter(state=ValidationState.RUNNING, verdict="none"),
    CheckpointFilter(step=7),
    CheckpointFilter(min_step=5, max_step=9, verdict=Verdict.VALID),
    CheckpointFilter(newer_than=START + timedelta(minutes=20)),
    CheckpointFilter(older_than=START + timedelta(minutes=20), assurance=Assurance.LOADED),
)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with fresh_database("memory", folder=tmp_path) as database:
        yield Training(database=database)


def _fill(training: Training) -> None:
    chance = random.Random(SEED)  # noqa: S311 - repeatable, not secret
    for _ in range(60):
        lifecycle = chance.choice([Lifecycle.REGISTERED, Lifecycle.SUPERSEDED])
        saved = training.save(
            chance.randrange(12),
            branch=chance.randrange(2),
            verdict=chance.choice([None, *Verdict]),
            assurance=chance.choice([Assurance.LOADED, Assurance.CONTENT]),
            created_at=START + timedelta(minutes=chance.randrange(40)),
            lifecycle=lifecycle,
            is_pinned=chance.random() < 0.2,
            is_quarantined=chance.random() < 0.2,
            is_suspect=chance.random() < 0.2,
        )
        if chance.random() < 0.3:
            with training.database.write() as tx:
                state = chance.choice([ValidationState.QUEUED, ValidationState.RUNNING])
                rows.add_validation(tx, saved, state=state)


def _passes(row: Row[Any], wanted: CheckpointFilter) -> bool:
    facts = [
        wanted.verdict is None or (row.verdict or "none") == str(wanted.verdict),
        wanted.assurance is None or row.assurance == wanted.assurance,
        wanted.lifecycle is None or row.lifecycle == wanted.lifecycle,
        wanted.hold is None or getattr(row, f"is_{wanted.hold}"),
        wanted.state is None or row.validation_state == wanted.state,
        wanted.step is None or row.step == wanted.step,
        wanted.min_step is None or row.step >= wanted.min_step,
        wanted.max_step is None or row.step <= wanted.max_step,
        wanted.newer_than is None or row.created_at > wanted.newer_than,
        wanted.older_than is None or row.created_at < wanted.older_than,
    ]
    return all(facts)


def _pages(training: Training, wanted: CheckpointFilter, *, limit: int) -> Iterator[Sequence[Row[Any]]]:
    cursor = None
    while True:
        page = history.list_checkpoints(
            training.services, project_id=training.project_id, wanted=wanted, cursor=cursor, limit=limit
        )
        yield page.items
        cursor = page.next
        if cursor is None:
            return


def _ids(pages: Iterator[Sequence[Row[Any]]]) -> list[int]:
    return [row.id for page in pages for row in page]


def test_every_filter_shows_exactly_what_passes_newest_first(database: Database) -> None:
    training = Training(database=database)
    _fill(training)
    with database.write() as tx:
        other = rows.add_project(tx, "other")
        store, run = rows.add_store(tx, other), rows.add_run(tx, other, "secret")
        rows.add_checkpoint(tx, run, store, step=7, verdict=Verdict.VALID)
    (everything,) = _pages(training, CheckpointFilter(), limit=500)
    assert len(everything) == 60
    for wanted in FILTERS:
        passing = [row for row in everything if _passes(row, wanted)]
        assert passing, wanted
        by_time = sorted(passing, key=lambda row: (row.created_at, row.id), reverse=True)
        in_run = sorted(passing, key=lambda row: (row.branch, row.step, row.created_at, row.id), reverse=True)
        assert _ids(_pages(training, wanted, limit=4)) == [row.id for row in by_time], wanted
        named = CheckpointFilter(**{**_fields(wanted), "run": "run-7"})
        assert _ids(_pages(training, named, limit=4)) == [row.id for row in in_run], wanted


def _fields(wanted: CheckpointFilter) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in CheckpointFilter.__dataclass_fields__}


def test_a_filter_that_no_index_serves_looks_at_a_bounded_number_a_page(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 7)
    _fill(training)
    for wanted in FILTERS:
        (all_at_once,) = _with_window(training, wanted, monkeypatch)
        pages = list(_pages(training, wanted, limit=4))
        assert [row.id for page in pages for row in page] == [row.id for row in all_at_once], wanted
    assert any(len(page) < 4 for page in list(_pages(training, CheckpointFilter(step=7), limit=4))[:-1])


def _with_window(
    training: Training, wanted: CheckpointFilter, monkeypatch: pytest.MonkeyPatch
) -> list[Sequence[Row[Any]]]:
    with monkeypatch.context() as patch:
        patch.setattr(windows, "WINDOW_ROWS", 10_000)
        return list(_pages(training, wanted, limit=500))


def test_no_list_of_checkpoints_sorts_or_scans(training: Training) -> None:
    """SQLite tells the same plan for any number of rows; those of PostgreSQL depend on them."""
    for wanted in FILTERS:
        for run_id in (None, training.run_id):
            listing = checkpoint_listing(training.project_id, run_id, wanted)
            query = listing.rows.where(*listing.served)
            query = query.order_by(*(column.desc() for column in listing.order)).limit(50)
            text_of = query.compile(training.database.engine, compile_kwargs={"literal_binds": False})
            with training.database.engine.connect() as connection:
                told = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text_of}", _bound(text_of))
                plan = [row[3] for row in told]
            assert plan[0].startswith("SEARCH checkpoints USING INDEX"), (wanted, plan)
            if not (run_id and wanted.step is not None):
                assert not any("TEMP B-TREE" in line for line in plan), (wanted, run_id, plan)


def _bound(compiled: SQLCompiler) -> tuple[Any, ...]:
    values = compiled.construct_params()
    return tuple(str(values[name]) for name in compiled.positiontup or ())


def test_a_page_goes_on_where_the_last_one_stopped_though_rows_are_added(training: Training) -> None:
    saved = [training.save(step, created_at=START + timedelta(minutes=step)) for step in range(6)]
    pages = _pages(training, CheckpointFilter(), limit=2)
    seen = [row.id for row in next(pages)]
    training.save(9, created_at=START + timedelta(minutes=9))
    seen += _ids(pages)
    assert seen == saved[::-1]


def test_a_cursor_of_other_filters_is_a_problem(training: Training) -> None:
    for step in range(3):
        training.save(step)
    page = history.list_checkpoints(
        training.services,
        project_id=training.project_id,
        wanted=CheckpointFilter(verdict=Verdict.VALID),
        cursor=None,
        limit=1,
    )
    for wanted in (CheckpointFilter(), CheckpointFilter(verdict=Verdict.VALID, run="run-7")):
        with pytest.raises(InvalidRequestError):
            history.list_checkpoints(
                training.services,
                project_id=training.project_id,
                wanted=wanted,
                cursor=page.next,
                limit=1,
            )


def test_a_checkpoint_shows_verdict_holds_and_history(database: Database) -> None:
    training = Training(database=database)
    saved = training.save(1, verdict=Verdict.INVALID)
    hold_checkpoint(
        training.services,
        project_id=training.project_id,
        checkpoint_id=saved,
        hold=Hold.QUARANTINED,
        reason="<b>burnt\u00e9</b>",
        actor=SERVICE,
    )
    with database.write() as tx:
        validation_id = training.row(saved).verdict_validation_id
        for name in ("existence", "byte_count"):
            rows.add_check(tx, validation_id, name)
        for _ in range(history.MAX_SHOWN + 5):
            rows.add_finding(tx, validation_id, message="\x1b[31mred")
        running = rows.add_validation(tx, saved, state=ValidationState.RUNNING)
    detail = history.show_checkpoint(training.services, project_id=training.project_id, checkpoint_id=saved)
    assert detail.in_force is not None
    assert detail.in_force.row.verdict == "INVALID"
    assert [check.name for check in detail.in_force.checks] == ["existence", "byte_count"]
    assert len(detail.in_force.findings) == history.MAX_SHOWN
    assert detail.in_force.findings_total == history.MAX_SHOWN + 5
    assert detail.in_force.findings[0].message == "\x1b[31mred"
    held = detail.holds[Hold.QUARANTINED]
    assert held is not None
    assert (held.actor, held.data["reason"]) == ("service", "<b>burnt\u00e9</b>")
    assert [(item.row.id, item.row.verdict) for item in detail.history.items] == [
        (running, None),
        (validation_id, "INVALID"),
    ]
    assert [part.name for part in detail.parts] == [""]


def test_findings_are_paged_in_the_order_of_the_report(training: Training) -> None:
    saved = training.save(1, verdict=Verdict.INVALID)
    validation_id = training.row(saved).verdict_validation_id
    with training.database.write() as tx:
        for number in range(7):
            rows.add_finding(tx, validation_id, number=number, message=str(number))
    seen: list[str] = []
    cursor = None
    while True:
        page = history.list_findings(
            training.services,
            project_id=training.project_id,
            validation_id=validation_id,
            cursor=cursor,
            limit=3,
        )
        seen += [row.message for row in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == list("0123456")


_ENTRIES = st.lists(
    st.fixed_dictionaries({"path": st.text(max_size=30), "length_bytes": st.integers(0, 2**53)}),
    max_size=50,
)


@settings(max_examples=30, deadline=None)
@given(_ENTRIES, st.integers(1, 64))
def test_evidence_is_read_entry_by_entry_whatever_the_pieces(
    entries: list[dict[str, Any]], read_bytes: int
) -> None:
    body = zstandard.ZstdCompressor().compress(json.dumps(entries, separators=(",", ":")).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "_READ_BYTES", read_bytes)
        assert list(evidence_files(body)) == entries


def test_an_entry_of_evidence_that_never_ends_is_refused() -> None:
    endless = '[{"path":"' + "x" * (evidence_module.MAX_ENTRY_CHARS + 10)
    body = zstandard.ZstdCompressor().compress(endless.encode())
    with pytest.raises(LimitExceededError):
        list(evidence_files(body))


def test_evidence_is_paged(training: Training) -> None:
    saved = training.save(1)
    validation_id = training.row(saved).verdict_validation_id
    files = [{"path": f"__{number}_0.distcp", "length_bytes": number} for number in range(7)]
    body = zstandard.ZstdCompressor().compress(json.dumps(files, separators=(",", ":")).encode())
    with training.database.write() as tx:
        tx.execute(insert(evidence).values(validation_id=validation_id, body=body, num_files=7))
    seen: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = history.list_evidence(
            training.services,
            project_id=training.project_id,
            validation_id=validation_id,
            cursor=cursor,
            limit=3,
        )
        seen += page.items
        cursor = page.next
        if cursor is None:
            break
    assert seen == files


def test_the_audit_is_filtered_and_paged(database: Database) -> None:
    training = Training(database=database)
    first = training.save(1)
    second = training.save(2)
    training.tell(RESUMED, first)
    training.tell(RESUMED, second)

    def listed(**filters: Any) -> list[tuple[str, int | None]]:  # noqa: ANN401 - filters
        found: list[tuple[str, int | None]] = []
        cursor = None
        while True:
            page = list_audit(
                training.services,
                project_id=training.project_id,
                wanted=AuditFilter(**filters),
                by=SERVICE,
                cursor=cursor,
                limit=2,
            )
            found += [(row.kind, row.checkpoint_id) for row in page.items]
            cursor = page.next
            if cursor is None:
                return found

    assert len(listed()) == len(listed(run="run-7")) == 6
    assert listed(kind=EventKind.RUN_BRANCHED) == [("run.branched", second), ("run.branched", first)]
    assert listed(checkpoint_id=second, kind=EventKind.CHECKPOINT_SUPERSEDED) == [
        ("checkpoint.superseded", second)
    ]


def test_what_belongs_to_another_project_is_nowhere(training: Training) -> None:
    saved = training.save(1)
    validation_id = training.row(saved).verdict_validation_id
    with training.database.write() as tx:
        other = rows.add_project(tx, "other")
    services = training.services
    for read in (
        lambda: history.show_checkpoint(services, project_id=other, checkpoint_id=saved),
        lambda: history.show_validation(services, project_id=other, validation_id=validation_id),
        lambda: history.show_manifest(services, project_id=other, checkpoint_id=saved, part=None),
        lambda: history.list_validations(
            services, project_id=other, checkpoint_id=saved, cursor=None, limit=1
        ),
        lambda: history.list_findings(
            services, project_id=other, validation_id=validation_id, cursor=None, limit=1
        ),
        lambda: history.list_evidence(
            services, project_id=other, validation_id=validation_id, cursor=None, limit=1
        ),
        lambda: history.list_checkpoints(
            services, project_id=other, wanted=CheckpointFilter(run="run-7"), cursor=None, limit=1
        ),
    ):
        with pytest.raises(NotFoundError):
            read()
    about_it = AuditFilter(checkpoint_id=saved)
    page = list_audit(services, project_id=other, wanted=about_it, by=SERVICE, cursor=None, limit=5)
    assert page.items == ()

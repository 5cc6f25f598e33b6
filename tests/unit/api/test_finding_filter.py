"""Checkpoints by the code of a finding: of the verdict in force, about the checkpoint, at a bounded cost."""

import pytest
from sqlalchemy import event, update

from ckptguard.model.finding import FindingCode
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Database
from ckptguard_api.domain.checkpoint_filter import CheckpointFilter
from ckptguard_api.repositories import windows
from ckptguard_api.tables import findings
from ckptguard_api.use_cases.history import list_checkpoints
from tests import service_rows as rows
from tests.served_app import ServedApp
from tests.started_run import Training

CRC = FindingCode.CRC_MISMATCH


def found(training: Training, **wanted: object) -> list[int]:
    ids, cursor = [], None
    while True:
        page = list_checkpoints(
            training.services,
            project_id=training.project_id,
            wanted=CheckpointFilter(**wanted),  # type: ignore[arg-type]
            cursor=cursor,
            limit=2,
        )
        ids += [row.id for row in page.items]
        cursor = page.next
        if cursor is None:
            return ids


def damaged(training: Training, step: int, *codes: FindingCode) -> int:
    saved = training.save(step, verdict=Verdict.INVALID)
    validation_id = training.row(saved).verdict_validation_id
    with training.database.write() as tx:
        for code in codes:
            rows.add_finding(tx, validation_id, code=code.value)
    return saved


def test_a_code_finds_exactly_the_checkpoints_that_have_it(database: Database) -> None:
    training = Training(database=database)
    both = damaged(training, 1, CRC, FindingCode.SHORT_SHARD)
    one = damaged(training, 2, CRC, CRC, CRC)
    other = damaged(training, 3, FindingCode.SHORT_SHARD)
    training.save(4)
    assert found(training, code=CRC) == [one, both]
    assert found(training, code=FindingCode.SHORT_SHARD, run="run-7") == [other, both]
    assert found(training, code=CRC, run="run-7", max_step=1) == [both]
    assert found(training, code=FindingCode.NON_FINITE) == []


def test_only_the_verdict_in_force_counts(database: Database) -> None:
    training = Training(database=database)
    saved = damaged(training, 1, CRC)
    with database.write() as tx:
        rows.add_verdict(tx, saved, Verdict.VALID)
    assert found(training, code=CRC) == []


def test_what_is_not_about_the_checkpoint_does_not_count(database: Database) -> None:
    training = Training(database=database)
    damaged(training, 1, CRC)
    with database.write() as tx:
        tx.execute(update(findings).values(is_about_checkpoint=False))
    assert found(training, code=CRC) == []


def test_a_page_looks_at_a_bounded_number_and_each_is_one_look_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 3)
    training = Training(database=database)
    first = damaged(training, 1, CRC)
    for step in range(2, 9):
        training.save(step)
    asked: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    assert found(training, code=CRC, run="run-7") == [first]
    assert sum("EXISTS" in statement for statement in asked) == 3
    if not database.is_postgresql:
        with database.read() as tx:
            statement = next(text for text in asked if "EXISTS" in text)
            values = (CRC.value, *([1] * (statement.count("?") - 1)))
            plan = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
        assert any("ix_findings_code (code=? AND validation_id=?)" in row[-1] for row in plan), plan


def test_the_api_takes_it_too(served: ServedApp) -> None:
    client = served.client()
    assert client.get("/v1/checkpoints?code=crc_mismatch").json() == {"items": [], "next": None}
    assert client.get("/v1/checkpoints?code=nonsense").status_code == 422

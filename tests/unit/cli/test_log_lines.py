"""Of what is logged, a person reads what matters, and nothing can forge or move a line."""

import io
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ckptguard.cli.log_lines import LogForm, form_for, lines_of

AT = "2026-11-29T10:20:30.123456Z"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shown(level: str, event: str, **more: Any) -> list[str]:  # noqa: ANN401 - any JSON
    return list(lines_of({"event": event, "level": level, "at": AT, **more}))


def test_a_verdict_is_one_line_with_what_was_read_and_how_long_it_took() -> None:
    told = {"lease": 1, "checkpoint": "demo step 300", "bytes_read": 1_200_000_000, "seconds": 0.8}
    valid = {**told, "verdict": "VALID", "basis": None, "assurance": "loaded", "code": None}
    damaged = {**told, "verdict": "INVALID", "basis": "damage", "assurance": None, "code": "crc_mismatch"}
    unknown = {**told, "verdict": "UNKNOWN", "basis": None, "assurance": None, "code": "store_unavailable"}
    assert [line for event in (valid, damaged, unknown) for line in shown("info", "verdict", **event)] == [
        "10:20:30 run demo step 300: VALID (loaded), 1.2 GB in 0.80 s",
        "10:20:30 run demo step 300: INVALID (damage: crc_mismatch), 1.2 GB in 0.80 s",
        "10:20:30 run demo step 300: UNKNOWN (store_unavailable), 1.2 GB in 0.80 s",
    ]


def test_what_is_said_for_programs_alone_is_not_shown() -> None:
    assert shown("info", "request", path="/v1/leases", status=200) == []
    assert shown("info", "Running upgrade  -> 0001_service", logger="alembic.runtime.migration") == []
    assert shown("debug", "verdict") != [], "a verdict is news at any level"


def test_warnings_and_errors_are_always_shown_with_all_that_is_known() -> None:
    assert shown("warning", "the worker died", exit_code=-9, pid=7) == [
        "10:20:30 warning: the worker died (exit_code -9, pid 7)"
    ]
    assert shown("error", "fault", request_id="r1", traceback="Traceback:\n  ValueError: x\n") == [
        "10:20:30 error: fault (request_id r1)",
        "  Traceback:",
        "    ValueError: x",
    ]


def test_no_name_can_forge_or_move_a_line() -> None:
    name = "x\n10:20:30 run demo step 1: VALID (loaded)\r\x1b[2J\u202e"
    lines = shown("info", "verdict", checkpoint=name, verdict="INVALID") + shown("warning", name, why=name)
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("event", [{}, {"event": "verdict"}, {"event": ["x"], "level": "error", "at": 5}])
def test_whatever_a_child_writes_ends_nothing(event: dict[str, Any]) -> None:
    for line in lines_of(event):
        assert line.isprintable()


def test_a_terminal_gets_lines_and_a_pipe_json_unless_told_otherwise() -> None:
    master, slave = os.openpty()
    with open(slave, "w", encoding="utf-8") as terminal:  # noqa: PTH123 - a descriptor
        assert form_for(None, terminal) is LogForm.HUMAN
        assert form_for(LogForm.JSON, terminal) is LogForm.JSON
    os.close(master)
    assert form_for(None, io.StringIO()) is LogForm.JSON
    assert form_for(LogForm.HUMAN, io.StringIO()) is LogForm.HUMAN

"""Every event is told in words, and none can keep a list from being shown."""

from collections.abc import Mapping
from typing import Any

import pytest

from ckptguard.model.service import EventKind
from ckptguard_api.pages.csv_answer import safe_cell
from ckptguard_api.pages.event_words import sentence_of

SCRIPT = "<script>\u202e\x1b[2J"
TOLD: Mapping[EventKind, Mapping[str, Any]] = {
    EventKind.RUN_CREATED: {"name": SCRIPT},
    EventKind.RUN_CHANGED: {"changes": {"min_steps": {"from": 1, "to": SCRIPT}}},
    EventKind.RUN_UNPROTECTED: {"unprotected_s": 7200.0, "has_valid": True},
    EventKind.RUN_STEP_WENT_BACK: {"step": 1, "highest_step": 2},
    EventKind.RUN_BRANCHED: {"branch": 1, "from_step": None, "rolled_back": 2, "restored": 0},
    EventKind.RUN_RESTARTS_FAILING: {"cleared": [1]},
    EventKind.RUN_RESTARTED: {"attempt": SCRIPT, "outcome": "resumed", "steps_done": None, "detail": None},
    EventKind.RUN_FRESH_START: {"attempt": "a", "detail": None},
    EventKind.CHECKPOINT_ANNOUNCED: {"step": 1, "location": SCRIPT},
    EventKind.CHECKPOINT_REGISTERED: {"step": 1, "location": SCRIPT, "num_files": 2, "bytes_total": None},
    EventKind.CHECKPOINT_SUPERSEDED: {"superseded_by": "rewritten", "by_checkpoint": 3},
    EventKind.CHECKPOINT_RESTORED: {},
    EventKind.CHECKPOINT_INCOMPLETE: {},
    EventKind.CHECKPOINT_DELETED: {"reason": SCRIPT},
    EventKind.CHECKPOINT_HELD: {"hold": "pinned", "reason": SCRIPT},
    EventKind.CHECKPOINT_RELEASED: {"holds": ["suspect"], "reason": SCRIPT},
    EventKind.CHECKPOINT_NOTED: {"text": f"a\n{SCRIPT}"},
    EventKind.CHECKPOINT_VERDICT_CHANGED: {
        "step": 1, "verdict": "VALID", "basis": None, "assurance": "loaded",
        "was": {"verdict": None, "basis": None, "assurance": None},
    },
    EventKind.VALIDATION_REQUESTED: {"depth": "load", "is_new": False, "reason": None},
    EventKind.VALIDATION_QUEUED: {"reason": "scrub", "depth": "load"},
    EventKind.VALIDATION_STARTED: {"attempt": 1, "worker": SCRIPT},
    EventKind.VALIDATION_ATTEMPT_ENDED: {"attempt": 1, "ending": "stalled", "reason": SCRIPT},
    EventKind.VALIDATION_FINISHED: {
        "verdict": "INVALID", "basis": "damage", "assurance": None,
        "is_in_force": False, "why_not_in_force": SCRIPT,
    },
    EventKind.VALIDATION_CANCELLED: {"why": SCRIPT},
    EventKind.WORKER_JOINED: {"worker": SCRIPT},
    EventKind.WORKER_SILENT: {"worker": SCRIPT, "seen_at": "2026-11-29T12:00:00+00:00"},
    EventKind.WORKER_RETURNED: {"worker": SCRIPT},
    EventKind.STORE_CHANGED: {"name": "demo", "url": SCRIPT, "change": "added"},
    EventKind.TOKEN_CREATED: {"name": SCRIPT, "hint": "ckg_ab12", "browser": True},
    EventKind.TOKEN_REVOKED: {"name": SCRIPT, "hint": "ckg_ab12"},
    EventKind.WEBHOOK_CHANGED: {"webhook_id": 1, "change": "added"},
    EventKind.WEBHOOK_TEST: {"webhook_id": 1},
}  # fmt: skip


def plain(kind: EventKind) -> str:
    return kind.replace(".", " ").replace("_", " ")


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_is_told_in_words_that_only_show(kind: EventKind) -> None:
    sentence = sentence_of(kind, TOLD[kind])
    assert sentence != plain(kind), "the sentence was not made"
    assert sentence.isprintable()


@pytest.mark.parametrize("kind", EventKind)
def test_data_of_another_version_fall_back_to_the_kind(kind: EventKind) -> None:
    for data in ({}, {"changes": 3, "was": None, "holds": None, "seen_at": "x", "outcome": "x", "text": 1}):
        assert sentence_of(kind, data).isprintable()


def test_a_kind_that_this_version_does_not_know_is_named() -> None:
    assert sentence_of("checkpoint.moved_away", {"a": 1}) == "checkpoint moved away"


def test_examples_read_as_people_would_say_it() -> None:
    start = {"attempt": "job-7", "outcome": "failed_early", "steps_done": 3, "detail": "OOM"}
    assert sentence_of("run.restarted", start) == "start job-7 failed early after 3 steps: OOM"
    assert sentence_of("run.unprotected", {"unprotected_s": 90, "has_valid": False}) == (
        "unprotected: without any for 90.00 s"
    )
    assert sentence_of("checkpoint.verdict.changed", TOLD[EventKind.CHECKPOINT_VERDICT_CHANGED]) == (
        "verdict of step 1: VALID (loaded), was no verdict"
    )


@pytest.mark.parametrize(
    "text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "  =1", "\uff1d1", "\uff0b1"]
)
def test_no_text_begins_as_a_formula(text: str) -> None:
    assert str(safe_cell(text)).startswith("'")


def test_numbers_and_harmless_texts_stay_as_they_are() -> None:
    assert [safe_cell(value) for value in (-1, 2.5, None, "run-7", "a=b")] == [-1, 2.5, None, "run-7", "a=b"]

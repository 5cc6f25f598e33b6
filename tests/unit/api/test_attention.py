"""What needs a person first: each rule, and that the worse one decides."""

from datetime import UTC, datetime, timedelta

import pytest

from ckptguard.model.service import Lifecycle
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.attention import LONG_PENDING_S, Attention, RunFacts, Sight, judge

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ACTIVE_S = 7 * 86_400.0
VALID = Verdict.VALID


def ago_s(**since: float) -> float:
    return (NOW - timedelta(**since)).timestamp()


def sight(step: int, *, hours_ago: float = 1, **facts: object) -> Sight:
    return Sight(id=step, branch=0, step=step, created_s=ago_s(hours=hours_ago), **facts)  # type: ignore[arg-type]


def waiting(step: int, *, seconds: float) -> Sight:
    """Return one that was registered so long ago and has no verdict."""
    return sight(step, registered_s=ago_s(seconds=seconds), validation_state="queued")


def facts(**values: object) -> RunFacts:
    """Return a healthy run: step 200 is VALID and the newest."""
    newest = sight(200, verdict=VALID)
    healthy = {"made_s": ago_s(days=1), "last": newest, "newest": newest, "valid": newest}
    return RunFacts(**(healthy | values))  # type: ignore[arg-type]


def attention(run: RunFacts) -> Attention:
    return judge(run, now_s=NOW.timestamp(), active_s=ACTIVE_S).attention


EVERY_RULE = {
    Attention.RESTARTS_FAILING: facts(restarts_failing_s=NOW.timestamp()),
    Attention.NOTHING_VALID: facts(valid=None, unknown=sight(100)),
    Attention.NEWEST_INVALID: facts(invalid=sight(300)),
    Attention.UNPROTECTED: facts(unprotected_after_s=1800.0),
    Attention.HELD: facts(held=[sight(300)]),
    Attention.NEWEST_UNKNOWN: facts(unknown=sight(300)),
    Attention.NEVER_CAME: facts(last=sight(300, lifecycle=Lifecycle.INCOMPLETE)),
    Attention.PENDING_LONG: facts(newest=waiting(300, seconds=LONG_PENDING_S + 1)),
    Attention.STEP_WENT_BACK: facts(step_went_back_s=NOW.timestamp()),
    Attention.FINE: facts(),
    Attention.INACTIVE: facts(last=sight(200, hours_ago=24 * 8), made_s=ago_s(days=9)),
}


@pytest.mark.parametrize("expected", Attention)
def test_each_state_has_its_rule(expected: Attention) -> None:
    assert attention(EVERY_RULE[expected]) is expected


@pytest.mark.parametrize("worse", [one for one in Attention if one.needs_person])
def test_the_worse_of_two_decides(worse: Attention) -> None:
    for milder in [one for one in Attention if one.needs_person and one.rank > worse.rank]:
        changed = {
            name: getattr(EVERY_RULE[milder], name)
            for name in RunFacts._fields
            if getattr(EVERY_RULE[milder], name) != getattr(facts(), name)
        }
        both = EVERY_RULE[worse]._replace(**changed)
        assert attention(both).rank <= worse.rank, f"{worse} and {milder}"


def test_what_lies_below_the_newest_valid_needs_nobody() -> None:
    below = sight(100)
    assert attention(facts(invalid=below, unknown=below, held=[below])) is Attention.FINE


def test_an_unknown_that_is_asked_for_again_needs_nobody_yet() -> None:
    assert attention(facts(unknown=sight(300, has_retry=True))) is Attention.FINE
    assert attention(facts(unknown=sight(300, validation_state="queued"))) is Attention.FINE


def test_a_run_without_any_verdict_is_no_alarm() -> None:
    pending = waiting(100, seconds=1)
    assert attention(facts(valid=None, newest=pending, last=pending)) is Attention.FINE


def test_a_valid_one_that_no_launcher_may_take_is_nothing_to_resume_from() -> None:
    judged = judge(facts(valid=None), now_s=NOW.timestamp(), active_s=ACTIVE_S)
    assert (judged.attention, judged.about and judged.about.step) == (Attention.NOTHING_VALID, 200)


def test_a_run_that_was_left_long_ago_is_over_whatever_state_it_was_left_in() -> None:
    old = sight(200, hours_ago=24 * 30)
    left = facts(made_s=old.created_s, last=old, newest=old, valid=None, invalid=old)
    assert attention(left) is Attention.INACTIVE


def test_restarts_that_fail_now_make_an_old_run_active() -> None:
    old = sight(200, hours_ago=24 * 30)
    failing = facts(made_s=old.created_s, last=old, newest=old, valid=old, restarts_failing_s=NOW.timestamp())
    assert attention(failing) is Attention.RESTARTS_FAILING


def test_without_any_valid_one_a_run_is_unprotected_since_it_was_made() -> None:
    pending = waiting(100, seconds=1)
    run = facts(valid=None, newest=pending, last=pending, unprotected_after_s=3600.0)
    judged = judge(run, now_s=NOW.timestamp(), active_s=ACTIVE_S)
    assert (judged.attention, judged.since_s) == (Attention.UNPROTECTED, run.made_s)

"""The choice of a resume target, one rule at a time."""

from datetime import UTC, datetime, timedelta

import pytest

from ckptguard.model.policy import Depth
from ckptguard.model.service import Lifecycle, ResumeState, SupersededBy, ValidationState
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.domain.resume import Asked, Candidate, Choice, Reason
from ckptguard_api.domain.resume_choice import changes_at, choose

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def checkpoint(step: int, **given: object) -> Candidate:
    """Return a registered checkpoint that is VALID up to `loaded`, but for what is given."""
    values: dict[str, object] = {
        "id": step,
        "branch": 0,
        "step": step,
        "created_at": NOW - timedelta(hours=1),
        "lifecycle": Lifecycle.REGISTERED,
        "verdict": Verdict.VALID,
        "assurance": Assurance.LOADED,
        "provenance": Provenance.PROVEN,
        "device": "cuda:0 NVIDIA H200",
        "validated_at": NOW - timedelta(minutes=30),
    }
    return Candidate(**values | given)  # type: ignore[arg-type]


def unjudged(step: int, **given: object) -> Candidate:
    """Return a registered checkpoint without a verdict."""
    nothing = {"verdict": None, "assurance": None, "provenance": None, "device": None, "validated_at": None}
    return checkpoint(step, **nothing | given)


def queued(step: int, depth: Depth = Depth.LOAD) -> Candidate:
    """Return a checkpoint whose first validation waits for a worker."""
    return unjudged(step, validation_state=ValidationState.QUEUED, open_depth=depth)


def chosen(*candidates: Candidate, **asked: object) -> Choice:
    """Choose at `NOW`."""
    return choose(candidates, Asked(**asked), now=NOW)  # type: ignore[arg-type]


def reasons(choice: Choice) -> dict[int, Reason]:
    """Return why each was passed over, by step."""
    return {passed.candidate.step: passed.reason for passed in choice.passed_over}


def test_newest_valid_is_chosen_by_branch_then_step_then_time() -> None:
    later = NOW - timedelta(minutes=1)
    again = checkpoint(100, id=3, branch=1, created_at=later)
    choice = chosen(checkpoint(900), again, checkpoint(100, branch=1))
    assert choice.target == again


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"verdict": Verdict.INVALID, "assurance": None}, Reason.INVALID),
        ({"verdict": Verdict.UNKNOWN, "assurance": None}, Reason.UNKNOWN),
        ({"verdict": None, "assurance": None}, Reason.NOT_VALIDATED),
        ({"lifecycle": Lifecycle.ANNOUNCED, "verdict": None, "assurance": None}, Reason.ANNOUNCED),
        ({"lifecycle": Lifecycle.INCOMPLETE, "verdict": None, "assurance": None}, Reason.INCOMPLETE),
        ({"is_quarantined": True}, Reason.QUARANTINED),
        ({"is_suspect": True}, Reason.SUSPECT),
        ({"assurance": Assurance.CONTENT}, Reason.BELOW_ASSURANCE),
    ],
)
def test_newer_one_is_passed_over_with_its_reason(given: dict[str, object], reason: Reason) -> None:
    choice = chosen(checkpoint(1), checkpoint(2, **given))
    assert choice.target == checkpoint(1)
    assert reasons(choice) == {2: reason}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"min_provenance": Provenance.PROVEN}, Reason.BELOW_PROVENANCE),
        ({"device": "cuda"}, Reason.OTHER_DEVICE),
        ({"max_age_s": 3600.0}, Reason.TOO_OLD),
    ],
)
def test_what_the_launcher_asks_for_passes_over(asked: dict[str, object], reason: Reason) -> None:
    other = {"provenance": Provenance.UNCHANGED, "device": "cpu", "validated_at": NOW - timedelta(hours=2)}
    choice = chosen(checkpoint(1), checkpoint(2, **other), **asked)
    assert choice.target == checkpoint(1)
    assert reasons(choice) == {2: reason}


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:0 NVIDIA H200"])
def test_device_is_asked_for_by_kind_place_or_name(name: str) -> None:
    assert chosen(checkpoint(1), device=name).target == checkpoint(1)
    assert chosen(checkpoint(1, device="cuda:01"), device="cuda:0").target is None


@pytest.mark.parametrize("lifecycle", [Lifecycle.SUPERSEDED, Lifecycle.DELETED])
def test_superseded_and_deleted_ones_are_neither_chosen_nor_named(lifecycle: Lifecycle) -> None:
    choice = chosen(checkpoint(1), checkpoint(2, lifecycle=lifecycle))
    assert choice.target == checkpoint(1)
    assert choice.passed_over == ()


def test_rolled_back_one_is_chosen_by_its_step_alone() -> None:
    left = checkpoint(2, lifecycle=Lifecycle.SUPERSEDED, superseded_by=SupersededBy.ROLLED_BACK)
    assert chosen(checkpoint(1), left).target == checkpoint(1)
    assert chosen(checkpoint(1), left, step=2).target == left


def test_rolled_back_one_that_was_never_complete_is_neither_waited_for_nor_named() -> None:
    left = {"lifecycle": Lifecycle.SUPERSEDED, "superseded_by": SupersededBy.ROLLED_BACK}
    choice = chosen(checkpoint(1), unjudged(2, is_complete=False, **left), step=2)
    assert (choice.state, choice.is_open, choice.passed_over) == (ResumeState.NONE_VALID, False, ())


@pytest.mark.parametrize(
    "given",
    [
        {"superseded_by": SupersededBy.REWRITTEN},
        {"superseded_by": SupersededBy.ROLLED_BACK, "is_quarantined": True},
        {"superseded_by": SupersededBy.ROLLED_BACK, "verdict": Verdict.INVALID, "assurance": None},
    ],
)
def test_naming_a_step_never_forces_a_bad_one(given: dict[str, object]) -> None:
    choice = chosen(checkpoint(1), checkpoint(2, lifecycle=Lifecycle.SUPERSEDED, **given), step=2)
    assert choice.target is None
    assert choice.state is ResumeState.NONE_VALID


def test_before_step_asks_about_earlier_ones_alone() -> None:
    choice = chosen(checkpoint(1), checkpoint(2), checkpoint(3, verdict=Verdict.INVALID), before_step=2)
    assert choice.target == checkpoint(1)
    assert choice.passed_over == ()


def test_run_without_any_checkpoint_says_so_and_only_such_a_run() -> None:
    assert chosen().state is ResumeState.NONE_EXIST
    for lifecycle in (Lifecycle.DELETED, Lifecycle.INCOMPLETE, Lifecycle.SUPERSEDED):
        assert chosen(unjudged(1, lifecycle=lifecycle)).state is ResumeState.NONE_VALID
    assert chosen(checkpoint(1), step=2).state is ResumeState.NONE_VALID


def test_pending_goes_before_a_weaker_one_which_is_shown_all_the_same() -> None:
    weaker = checkpoint(1, assurance=Assurance.CONTENT)
    choice = chosen(weaker, queued(2))
    assert (choice.state, choice.target, choice.below) == (ResumeState.PENDING, None, weaker)


def test_weaker_one_is_the_strongest_then_the_newest() -> None:
    content = checkpoint(2, assurance=Assurance.CONTENT)
    older, newer = checkpoint(1, assurance=Assurance.CONTENT), checkpoint(3, assurance=Assurance.STRUCTURE)
    choice = chosen(older, content, newer)
    assert (choice.state, choice.below) == (ResumeState.VALID_BELOW, content)


def test_validation_that_cannot_reach_what_is_asked_is_not_waited_for() -> None:
    assert chosen(queued(1, Depth.CONTENT)).state is ResumeState.NONE_VALID
    assert chosen(queued(1, Depth.CONTENT), min_assurance=Assurance.CONTENT).state is ResumeState.PENDING


def test_announced_one_is_pending_until_nobody_keeps_it_alive() -> None:
    alive = unjudged(1, lifecycle=Lifecycle.ANNOUNCED, keep_alive_until=NOW + timedelta(seconds=1))
    assert chosen(alive).state is ResumeState.PENDING
    dead = unjudged(1, lifecycle=Lifecycle.ANNOUNCED, keep_alive_until=NOW)
    assert chosen(dead).state is ResumeState.NONE_VALID


def test_held_one_is_not_pending() -> None:
    assert chosen(unjudged(1, is_quarantined=True)).state is ResumeState.NONE_VALID


def test_require_newest_gives_none_while_a_newer_one_is_open() -> None:
    choice = chosen(checkpoint(1), queued(2), require_newest=True)
    assert (choice.state, choice.target, choice.below) == (ResumeState.PENDING, None, None)
    judged = checkpoint(2, verdict=Verdict.INVALID, assurance=None)
    assert chosen(checkpoint(1), judged, require_newest=True).target == checkpoint(1)


def test_validation_again_shows_the_verdict_in_force_as_the_reason() -> None:
    again = {"validation_state": ValidationState.RUNNING, "open_depth": Depth.LOAD}
    choice = chosen(
        checkpoint(1, verdict=Verdict.INVALID, assurance=None, **again),
        checkpoint(2, verdict=Verdict.UNKNOWN, assurance=None, **again),
    )
    assert reasons(choice) == {1: Reason.INVALID, 2: Reason.RUNNING}
    assert choice.state is ResumeState.PENDING


def test_answer_changes_by_time_when_an_announcement_ends_or_a_validation_gets_too_old() -> None:
    ends_at = NOW + timedelta(seconds=5)
    announced = unjudged(2, lifecycle=Lifecycle.ANNOUNCED, keep_alive_until=ends_at)
    assert changes_at([checkpoint(1)], Asked(), now=NOW) is None
    assert changes_at([checkpoint(1), announced], Asked(), now=NOW) == ends_at
    asked = Asked(max_age_s=1801.0)
    assert changes_at([checkpoint(1), announced], asked, now=NOW) == NOW + timedelta(seconds=1)

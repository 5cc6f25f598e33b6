"""Failing restarts point at a checkpoint only where nodes do not, and at most one step back by themselves."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptguard.model.service import RestartOutcome
from ckptguard_api.domain.restart_judgement import (
    NOTHING,
    Failure,
    RestartJudgement,
    counts_against,
    is_blamed,
    judge_restarts,
)

START = datetime(2026, 11, 29, tzinfo=UTC)
ORDER = {step: (0, step, START + timedelta(minutes=step), step) for step in range(10)}


def _failures(*nodes: str, checkpoint_id: int = 1) -> list[Failure]:
    return [
        Failure(
            checkpoint_id=checkpoint_id, attempt=f"{checkpoint_id}/{index}", nodes=frozenset(names.split())
        )
        for index, names in enumerate(nodes)
    ]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["a b", "c d"], False),  # two only
        (["a b", "c d", "a b"], True),
        (["a b", "b c", "c a"], False),  # each two share a node
        (["a b", "a b", "a b"], False),
        (["", "", ""], True),  # nobody knows the nodes
        (["a", "", ""], False),  # the only known nodes may be to blame
        (["a", "b", ""], True),
    ],
)
def test_three_starts_on_two_disjoint_node_sets_speak_against_a_checkpoint(
    nodes: list[str], *, expected: bool
) -> None:
    assert is_blamed(_failures(*nodes)) is expected


def test_one_start_told_in_two_ways_is_one() -> None:
    failures = _failures("a", "b")
    assert not is_blamed([*failures, failures[-1]])


@pytest.mark.parametrize(
    ("outcome", "steps_done", "expected"),
    [
        (RestartOutcome.FAILED_LOADING, None, True),
        (RestartOutcome.FAILED_LOADING, 0, True),
        (RestartOutcome.FAILED_EARLY, None, True),
        (RestartOutcome.FAILED_EARLY, 19, True),
        (RestartOutcome.FAILED_EARLY, 20, False),
        (RestartOutcome.RESUMED, 0, False),
        (RestartOutcome.PROGRESSED, 0, False),
    ],
)
def test_only_failures_in_load_or_before_the_runs_steps_count(
    outcome: RestartOutcome, steps_done: int | None, *, expected: bool
) -> None:
    assert counts_against(outcome, steps_done, min_steps=20) is expected


def test_if_the_older_one_fails_too_the_first_is_cleared_and_the_run_is_failing() -> None:
    failures = _failures("a", "b", "c", checkpoint_id=5) + _failures("a", "b", "c", checkpoint_id=4)
    judgement = judge_restarts(failures, suspects={5}, order=ORDER, can_step_back=True, is_failing=False)
    assert judgement == RestartJudgement(cleared=frozenset({5}), is_failing=True)


def test_a_save_made_after_the_step_back_is_judged_for_itself() -> None:
    failures = _failures("a", "b", "c", checkpoint_id=5) + _failures("a", "b", "c", checkpoint_id=6)
    judgement = judge_restarts(failures, suspects={5}, order=ORDER, can_step_back=True, is_failing=False)
    assert judgement == RestartJudgement(suspect=6)


def test_the_last_checkpoint_that_a_run_can_start_from_is_never_taken_away() -> None:
    failures = _failures("a", "b", "c")
    judgement = judge_restarts(failures, suspects=set(), order=ORDER, can_step_back=False, is_failing=False)
    assert judgement == RestartJudgement(is_failing=True)


def test_a_run_known_to_fail_takes_no_further_step_back() -> None:
    failures = _failures("a", "b", "c")
    assert (
        judge_restarts(failures, suspects=set(), order=ORDER, can_step_back=True, is_failing=True) == NOTHING
    )


_STARTS = st.lists(
    st.tuples(st.integers(1, 4), st.frozensets(st.sampled_from("abcd"), max_size=3), st.booleans()),
    max_size=40,
)


@given(_STARTS)
def test_histories_agree_with_a_plain_model(starts: list[tuple[int, frozenset[str], bool]]) -> None:
    """Every history: at most one suspect a time of trouble, never with less than the evidence asked for."""
    failures: list[Failure] = []
    suspects: set[int] = set()
    is_failing = False
    for number, (checkpoint_id, nodes, has_progressed) in enumerate(starts):
        if has_progressed:
            failures, is_failing = [], False
            suspects = set()
            continue
        failures.append(Failure(checkpoint_id=checkpoint_id, attempt=str(number), nodes=nodes))
        judgement = judge_restarts(
            failures, suspects=suspects, order=ORDER, can_step_back=checkpoint_id > 1, is_failing=is_failing
        )
        own = [failure for failure in failures if failure.checkpoint_id == checkpoint_id]
        is_enough = len(own) >= 3 and _has_two_apart(own)
        newer = {other for other in suspects if other > checkpoint_id}
        if not is_enough or is_failing or checkpoint_id in suspects:
            assert judgement == NOTHING
        elif newer or checkpoint_id == 1:
            assert judgement == RestartJudgement(cleared=frozenset(newer), is_failing=True)
        else:
            assert judgement == RestartJudgement(suspect=checkpoint_id)
        suspects -= judgement.cleared
        suspects |= {judgement.suspect} - {None} if judgement.suspect else set()
        is_failing = is_failing or judgement.is_failing


def _has_two_apart(failures: list[Failure]) -> bool:
    known = [failure.nodes for failure in failures if failure.nodes]
    if not known:
        return True
    for one in known:
        for other in known:
            if not one & other:
                return True
    return False

"""What an answer means to a launcher: every state under every flag."""

from itertools import product

import pytest

from ckptguard.cli.exit_codes import EXIT_CODE_OF_ENDING, exit_code_of_resume_error
from ckptguard.client.answers import ResumeAnswer
from ckptguard.client.decode import decode
from ckptguard.errors import ConfigError, NotFoundError, ObjectNotFoundError, ServiceUnavailableError
from ckptguard.model.resume import Ending, OnUnavailable
from ckptguard.model.service import ResumeState
from ckptguard.operations.resume_decision import Decision, Flags, decide
from tests.scripted_service import resume_value, target_value

BELOW = target_value(assurance="content")


def answers() -> dict[str, ResumeAnswer | None]:
    """Return every kind of answer by name; None is none."""
    values = {state.value: resume_value(state.value) for state in ResumeState}
    values |= {f"{state.value} cached": resume_value(state.value, is_cached=True) for state in ResumeState}
    values["pending with one below"] = resume_value("pending", below=BELOW)
    values["pending, newest required, with one below"] = resume_value(
        "pending", below=BELOW, asked={"require_newest": True}
    )
    decoded = {name: decode(ResumeAnswer, value, at="answer") for name, value in values.items()}
    return {**decoded, "no answer": None}


ANSWERS = answers()
FLAGS = [
    Flags(
        run="r", is_below_accepted=below, is_fresh_allowed=fresh, fresh_despite=despite, on_unavailable=away
    )
    for below, fresh, despite, away in product(
        (False, True), (False, True), (None, "r", "other"), OnUnavailable
    )
]


def code_of(decision: Decision) -> int:
    return int(EXIT_CODE_OF_ENDING[decision.ending])


def expected_code(name: str, flags: Flags, *, dropped: bool) -> int:
    """Return the exit code as design §9 says it, written down anew."""
    if name == "no answer" or name.endswith(" cached"):
        return 20
    if name == "valid":
        return 0
    if name == "valid_below":
        return 10
    if name.startswith("pending"):
        return 10 if name == "pending with one below" and flags.is_below_accepted else 20
    if name == "none_exist" and not dropped:
        return 0 if flags.is_fresh_allowed else 40
    return 0 if flags.fresh_despite == "r" else 30


def test_every_answer_under_every_flag_has_the_code_of_design_9() -> None:
    wrong = [
        (name, flags, dropped)
        for name, flags, dropped in product(ANSWERS, FLAGS, (False, True))
        if code_of(decide(ANSWERS[name], flags, has_dropped=dropped))
        != expected_code(name, flags, dropped=dropped)
    ]
    assert not wrong
    assert len(ANSWERS) * len(FLAGS) * 2 == 15 * 36 * 2


def test_a_path_is_meant_only_for_what_is_valid() -> None:
    for name, flags, dropped in product(ANSWERS, FLAGS, (False, True)):
        decision = decide(ANSWERS[name], flags, has_dropped=dropped)
        if decision.target is not None:
            assert decision.ending in {Ending.PROVEN, Ending.BELOW}
            assert name == "valid" or flags.is_below_accepted


def test_a_fresh_start_over_checkpoints_needs_the_run_named_and_an_audit() -> None:
    for name, flags, dropped in product(ANSWERS, FLAGS, (False, True)):
        decision = decide(ANSWERS[name], flags, has_dropped=dropped)
        if decision.ending is Ending.FRESH and (name != "none_exist" or dropped):
            assert flags.fresh_despite == "r"
            assert decision.must_be_audited


def test_allow_fresh_changes_nothing_but_an_empty_run() -> None:
    for name, dropped in product(ANSWERS, (False, True)):
        plain = decide(ANSWERS[name], Flags(run="r"), has_dropped=dropped)
        allowed = decide(ANSWERS[name], Flags(run="r", is_fresh_allowed=True), has_dropped=dropped)
        if name != "none_exist" or dropped:
            assert allowed == plain


def test_every_ending_has_an_exit_code() -> None:
    assert set(EXIT_CODE_OF_ENDING) == set(Ending)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServiceUnavailableError("away"), 20),
        (NotFoundError("no project"), 30),
        (ObjectNotFoundError("gone"), 30),
        (ConfigError("--wait x"), 2),
    ],
)
def test_an_error_is_never_an_empty_run(error: Exception, code: int) -> None:
    assert isinstance(error, NotFoundError | ObjectNotFoundError | ServiceUnavailableError | ConfigError)
    assert exit_code_of_resume_error(error) == code

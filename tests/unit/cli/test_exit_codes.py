"""Exit codes follow design §9, and every error has an answer."""

import ast
from pathlib import Path

import pytest

import ckptguard
from ckptguard import errors
from ckptguard.cli.exit_codes import ERROR_ANSWERS, ExitCode, answer_to_error, exit_code_of_check
from ckptguard.errors import CkptGuardError, ManifestFormatError, StoreUnavailableError
from ckptguard.model.finding import Basis
from ckptguard.model.policy import Depth
from ckptguard.model.verdict import Assurance, Judgement, Verdict

STRUCTURE, CONTENT, LOAD = Depth


def valid(assurance: Assurance) -> Judgement:
    return Judgement(verdict=Verdict.VALID, assurance=assurance)


@pytest.mark.parametrize(
    ("judgement", "depth", "code"),
    [
        (valid(Assurance.LOADED), LOAD, 0),
        (valid(Assurance.RESUMABLE), LOAD, 0),
        (valid(Assurance.CONTENT), LOAD, 10),
        (valid(Assurance.STRUCTURE), LOAD, 10),
        (valid(Assurance.CONTENT), CONTENT, 0),
        (valid(Assurance.STRUCTURE), CONTENT, 10),
        (valid(Assurance.STRUCTURE), STRUCTURE, 0),
        (Judgement(verdict=Verdict.UNKNOWN, is_retryable=True), LOAD, 20),
        (Judgement(verdict=Verdict.UNKNOWN), LOAD, 30),
        (Judgement(verdict=Verdict.INVALID, basis=Basis.DAMAGE), STRUCTURE, 30),
        (Judgement(verdict=Verdict.INVALID, basis=Basis.POLICY), LOAD, 30),
    ],
)
def test_each_judgement_has_the_code_of_design_9(judgement: Judgement, depth: Depth, code: int) -> None:
    assert exit_code_of_check(judgement, depth=depth) == code


def test_an_empty_place_is_40_whatever_else_is_said() -> None:
    judgement = Judgement(verdict=Verdict.UNKNOWN)
    assert exit_code_of_check(judgement, depth=LOAD, is_nothing_there=True) == 40


def test_only_valid_at_the_depth_asked_is_0() -> None:
    for verdict in Verdict:
        for is_retryable in (False, True):
            judgement = Judgement(verdict=verdict, is_retryable=is_retryable)
            assert exit_code_of_check(judgement, depth=LOAD) != ExitCode.OK


def test_every_public_error_class_has_an_answer_of_its_own() -> None:
    public = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CkptGuardError)
    }
    assert public - {CkptGuardError} == set(ERROR_ANSWERS)


def test_every_error_class_made_elsewhere_has_an_ancestor_with_an_answer() -> None:
    answered = {kind.__name__ for kind in ERROR_ANSWERS}
    assert _descendants({"CkptGuardError"}) - answered - {"CkptGuardError"} == (
        _descendants(answered) - answered
    )


def test_what_may_be_retried_is_20_and_nothing_else_is() -> None:
    for kind, answer in ERROR_ANSWERS.items():
        assert (answer.exit_code is ExitCode.TRY_AGAIN) == kind.is_retryable, kind


def test_no_error_is_ever_0() -> None:
    assert all(answer.exit_code is not ExitCode.OK for answer in ERROR_ANSWERS.values())


def test_an_error_class_made_elsewhere_takes_its_parents_answer() -> None:
    class QuotaError(StoreUnavailableError):
        code = "quota"

    assert answer_to_error(QuotaError("later")) is ERROR_ANSWERS[StoreUnavailableError]
    assert answer_to_error(ManifestFormatError(["a", "b"])) is ERROR_ANSWERS[ManifestFormatError]
    assert answer_to_error(CkptGuardError("?")).exit_code is ExitCode.UNUSABLE


def _descendants(roots: set[str]) -> set[str]:
    """Return the names of all classes at or below `roots`, read from source: none needs torch for it."""
    bases: dict[str, set[str]] = {}
    for file in Path(ckptguard.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    found = set(roots)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found

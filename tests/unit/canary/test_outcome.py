"""How several canaries become one outcome, and how an outcome crosses a pipe."""

import json

import pytest

from ckptguard.canary.outcome import (
    CanaryOutcome,
    Ending,
    merge_outcomes,
    outcome_from_json,
    outcome_to_json,
)
from ckptguard.errors import CanaryError
from ckptguard.model.report import TensorNumerics
from ckptguard.scan.result import FileScan


def scan(path: str) -> FileScan:
    nan = TensorNumerics(
        minimum=float("-inf"), maximum=float("inf"), is_finite=False, is_zero=False, is_denormal=False
    )
    return FileScan(path=path, length_bytes=7, numerics={"layers.0": nan})


def outcome(ending: Ending, *paths: str, is_about_bytes: bool = False) -> CanaryOutcome:
    return CanaryOutcome(
        ending=ending,
        reason="" if ending is Ending.DONE else f"of {ending}",
        is_about_bytes=is_about_bytes,
        scans={path: scan(path) for path in paths},
        versions={"torch": "2"},
        device="cpu",
    )


def test_an_outcome_comes_back_as_it_went_by_strict_json() -> None:
    went = outcome(Ending.LOAD_FAILED, "a", "b", is_about_bytes=True)
    assert outcome_from_json(json.loads(json.dumps(outcome_to_json(went), allow_nan=False))) == went


@pytest.mark.parametrize("value", [{}, {"ending": "done", "scans": 7}])
def test_what_is_no_outcome_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(CanaryError):
        outcome_from_json(value)


def test_all_done_is_done_and_every_file_is_there() -> None:
    merged = merge_outcomes([outcome(Ending.DONE, "a"), outcome(Ending.DONE, "b")])
    assert (merged.ending, sorted(merged.scans), merged.reason) == (Ending.DONE, ["a", "b"], "")


@pytest.mark.parametrize("fallout", [Ending.LOAD_FAILED, Ending.STOPPED, Ending.DONE, Ending.DEADLINE])
def test_the_crash_is_told_and_not_what_the_others_saw_of_it(fallout: Ending) -> None:
    merged = merge_outcomes([outcome(fallout, "a", is_about_bytes=True), outcome(Ending.CRASHED, "b")])
    assert (merged.ending, merged.reason, merged.is_about_bytes) == (
        Ending.CRASHED,
        "rank 1: of crashed",
        False,
    )
    assert sorted(merged.scans) == ["a", "b"]


def test_a_load_that_failed_for_want_of_memory_somewhere_is_not_about_the_bytes() -> None:
    failed = [outcome(Ending.LOAD_FAILED, is_about_bytes=True), outcome(Ending.LOAD_FAILED)]
    assert not merge_outcomes(failed).is_about_bytes

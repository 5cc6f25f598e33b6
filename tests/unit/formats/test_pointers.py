"""Pointers against steps: B26, B27, B34."""

import pytest

from ckptguard.formats.pointers import Pointer, check_pointers, parse_pointer
from ckptguard.model.finding import FindingCode, Severity
from ckptguard.model.report import StepSummary

STEPS = (
    StepSummary(step=100, path="iter_0000100", format="dcp", is_committed=True),
    StepSummary(step=200, path="iter_0000200", format="dcp", is_committed=True),
    StepSummary(step=300, path="iter_0000300", format="dcp", is_committed=False),
)


def severities(text: str | None, folders: tuple[str, ...] = ()) -> list[Severity]:
    findings = check_pointers(STEPS, [Pointer(path="tracker", text=text)], folders=folders)
    assert all(finding.code is FindingCode.POINTER_STALE for finding in findings)
    assert all(finding.file == "tracker" for finding in findings)
    return [finding.severity for finding in findings]


@pytest.mark.parametrize("text", ["200", "iter_0000200", "/old/place/iter_0000200", "iter_0000200/"])
def test_a_pointer_to_the_newest_committed_step_is_silent(text: str) -> None:
    assert severities(text) == []


@pytest.mark.parametrize("text", ["203", "global_step20", "300", "", None, "release", "x" * 500])
def test_a_pointer_that_leads_nowhere_is_a_warning(text: str | None) -> None:
    assert severities(text) == [Severity.WARNING]


def test_a_pointer_to_an_older_step_is_only_told() -> None:
    assert severities("100") == [Severity.INFO]


def test_release_is_a_legal_word_where_its_folder_is() -> None:
    assert severities("release", folders=("release",)) == []


def test_long_texts_are_cut() -> None:
    (finding,) = check_pointers(STEPS, [Pointer(path="tracker", text="x" * 5000)])
    assert len(finding.message) < 200


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"200\n", "200"),
        (b"  global_step1 ", "global_step1"),
        (b"", ""),
        (b"\xff\xfe", None),
        (b"a\0b", None),
    ],
)
def test_a_pointers_bytes_become_text_or_nothing(raw: bytes, text: str | None) -> None:
    assert parse_pointer(raw) == text

"""`mismatches` says every way in which a report differs from the right answer."""

from datetime import UTC, datetime

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, Provenance, conclude
from ckptguard.testing.case import invalid, mismatches, unknown, valid

_CRC = Finding(
    code=FindingCode.CRC_MISMATCH,
    check=CheckName.CONTENT,
    severity=Severity.ERROR,
    basis=Basis.DAMAGE,
    message="damaged",
    file="__1_0.distcp",
    fqn="model.w",
)


def _report(*findings: Finding) -> Report:
    checks = (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE, CheckName.CONTENT)
    return Report(
        target="t",
        path="t",
        format="dcp",
        checks=tuple(conclude(name, [each for each in findings if each.check is name]) for name in checks),
        provenance=Provenance.UNPROVEN,
        device=None,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=0,
        seconds_reading=0,
        num_shards=1,
        num_items=1,
        num_tensors=1,
        bytes_total=1,
        bytes_read=1,
    )


def test_the_right_answer_has_no_mismatch() -> None:
    expected = invalid(FindingCode.CRC_MISMATCH, file="__1_0.distcp", fqn="model.w")
    assert mismatches(expected, _report(_CRC)) == []


def test_a_missed_corruption_is_said() -> None:
    problems = mismatches(invalid(FindingCode.CRC_MISMATCH), _report())
    assert problems[0] == "verdict: expected INVALID, got VALID"
    assert "code crc_mismatch is missing" in problems


def test_a_false_alarm_is_said() -> None:
    problems = mismatches(valid(absent=[FindingCode.CRC_MISMATCH]), _report(_CRC))
    assert "verdict: expected VALID, got INVALID" in problems
    assert "code crc_mismatch must not appear" in problems


def test_the_wrong_file_is_said() -> None:
    problems = mismatches(invalid(FindingCode.CRC_MISMATCH, file="__2_0.distcp"), _report(_CRC))
    assert problems[0] == "file __2_0.distcp is not named"


def test_one_of_several_codes_is_enough() -> None:
    either = (FindingCode.CRC_MISMATCH, FindingCode.ZIP_MALFORMED)
    assert mismatches(invalid(any_codes=either), _report(_CRC)) == []
    assert mismatches(invalid(any_codes=either[1:]), _report(_CRC))


def test_claiming_more_than_can_be_proven_is_said() -> None:
    problems = mismatches(valid(at_most=Assurance.STRUCTURE), _report())
    assert problems[0] == "assurance content claims more than structure"


def test_invalid_is_not_unknown() -> None:
    assert mismatches(unknown(FindingCode.CRC_MISMATCH), _report(_CRC))

"""A report crosses from worker to service: all of it, and nothing that has another form."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ckptguard.errors import FormatError
from ckptguard.model import report_json
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import FileEvidence, Report, StepSummary, report_to_json
from ckptguard.model.report_json import report_from_json
from ckptguard.model.tensor_list import TensorEntry, pack_tensors
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance, Verdict, conclude

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
DAMAGE = Finding(
    code=FindingCode.CRC_MISMATCH,
    check=CheckName.CONTENT,
    severity=Severity.ERROR,
    basis=Basis.DAMAGE,
    message="layers.0 is damaged",
    file="__0_0.distcp",
    offset=64,
    length_bytes=1024,
    record="data/0",
    fqn="layers.0",
    slice_offsets=(0, 4),
    slice_sizes=(2, 4),
    expected="1",
    observed="2",
)
WARNING = Finding(
    code=FindingCode.POINTER_STALE, check=CheckName.EXISTENCE, severity=Severity.WARNING, message="old"
)


def report(**changes: object) -> Report:
    fields: dict[str, Any] = {
        "target": "/c",
        "path": "file:///c",
        "format": "dcp",
        "checks": (
            conclude(CheckName.EXISTENCE, (), counts={"files": 2}, seconds=0.5, bytes_read=7),
            conclude(CheckName.CONTENT, (DAMAGE,)),
            CheckResult(name=CheckName.PROBE, status=CheckStatus.SKIPPED, reason="not asked for"),
        ),
        "provenance": Provenance.UNCHANGED,
        "device": "cpu",
        "started_at": NOON,
        "seconds": 1.5,
        "seconds_reading": 1.0,
        "num_shards": 1,
        "num_items": 2,
        "num_tensors": 3,
        "bytes_total": 4,
        "bytes_read": 5,
        "step": 1200,
        "steps": (StepSummary(step=1200, path="step-1200", format="dcp", is_committed=True),),
        "files": (
            FileEvidence(
                path="__0_0.distcp",
                length_bytes=2048,
                checksum=Checksum(algorithm=Algorithm.XXH3_128, hex_digits="9f" * 16),
                version="1-2-3",
                modified_at=NOON,
            ),
            FileEvidence(path=".metadata", length_bytes=1),
        ),
        "other_findings": (WARNING,),
        "versions": {"torch": "2.14.1"},
        "manifest_identity": Checksum(algorithm=Algorithm.SHA256, hex_digits="ab" * 32),
    }
    return Report(**{**fields, **changes})


@pytest.mark.parametrize("changes", [{}, {"step": None, "device": None, "manifest_identity": None}])
def test_a_report_comes_back_as_it_went(changes: dict[str, object]) -> None:
    went = report(**changes)
    assert report_from_json(json.loads(json.dumps(report_to_json(went)))) == went


def test_the_verdict_that_the_sender_claims_is_not_looked_at() -> None:
    value = report_to_json(report()) | {"verdict": "VALID", "assurance": "loaded", "basis": None}
    assert report_from_json(value).judgement.verdict is Verdict.INVALID


def test_the_value_handed_in_is_left_as_it_is() -> None:
    value = report_to_json(report())
    before = copy.deepcopy(value)
    report_from_json(value)
    assert value == before


def test_every_problem_is_told_with_its_place() -> None:
    value = report_to_json(report())
    value["checks"][0]["status"] = "fine"
    value["checks"][1]["status"] = "pass"
    value["files"][0]["length_bytes"] = -1
    value["findings"][0]["slice"]["corner"] = 0
    value["seconds"] = float("nan")
    value["started_at"] = "2026-11-29T12:00:00"
    value["extra"] = 1
    del value["path"]
    with pytest.raises(FormatError) as refused:
        report_from_json(value)
    places = {problem.partition(": ")[0] for problem in refused.value.problems}
    assert places >= {
        "/checks/0/status",
        "/checks/1",
        "/files/0/length_bytes",
        "/findings/0/slice/corner",
        "/seconds",
        "/started_at",
        "/extra",
        "/path",
    }


def test_a_finding_of_a_check_that_is_not_there_is_no_way_around_the_verdict() -> None:
    value = report_to_json(report())
    value["checks"] = [check for check in value["checks"] if check["name"] != "content"]
    with pytest.raises(FormatError, match="there is no check content"):
        report_from_json(value)


def test_a_check_stands_once() -> None:
    value = report_to_json(report())
    value["checks"].append(value["checks"][0])
    with pytest.raises(FormatError, match="existence stands 2 times"):
        report_from_json(value)


@pytest.mark.parametrize("value", [{}, {"schema": 2}, {"schema": "1"}])
def test_another_schema_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        report_from_json(value)


def test_lists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_json, "MAX_FILES", 1)
    with pytest.raises(FormatError, match="/files: 2 entries, limit 1"):
        report_from_json(report_to_json(report()))


def test_problems_are_bounded() -> None:
    value = report_to_json(report())
    value["findings"] = [7] * 1000
    with pytest.raises(FormatError) as refused:
        report_from_json(value)
    assert len(refused.value.problems) == 101
    assert refused.value.problems[-1] == "and 900 more problems"


def test_a_list_of_tensors_crosses_too_and_only_a_lawful_one() -> None:
    told = report(tensor_list=pack_tensors([TensorEntry("w", "", "float32", (2,), 1, 8, 1, ("f",))]))
    value = json.loads(json.dumps(report_to_json(told)))
    assert report_from_json(value).tensor_list == told.tensor_list
    for wrong in (None, 7, "?", "bm90IHpsaWI="):
        with pytest.raises(FormatError) as caught:
            report_from_json(value | {"tensor_list": wrong})
        assert caught.value.problems[0].startswith("/tensor_list: ")


def test_a_report_without_a_list_of_tensors_does_not_speak_of_one() -> None:
    assert "tensor_list" not in report_to_json(report())

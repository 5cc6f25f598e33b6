"""A worker is believed about bytes that nobody else saw, and about nothing else (docs/threats.md)."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ckptguard.model.checksum import parse_checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Depth
from ckptguard.model.report import FileEvidence, Report, report_to_json
from ckptguard.model.service import Scope
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance
from ckptguard_api.domain.report_binding import RegisteredFile, contradictions
from tests.databases import fresh_database
from tests.leased_service import valid
from tests.served_app import ServedApp, served_app

SUMS = {"a.distcp": "xxh3-128:" + "a" * 32, ".metadata": "xxh3-128:" + "b" * 32}
REGISTERED = {path: RegisteredFile(length_bytes=10, checksum=checksum) for path, checksum in SUMS.items()}


def evidence(*, leave_out: str = "", **changes: Any) -> tuple[FileEvidence, ...]:  # noqa: ANN401 - fields
    return tuple(
        FileEvidence(**{"path": path, "length_bytes": 10, "checksum": parse_checksum(checksum), **changes})
        for path, checksum in SUMS.items()
        if path != leave_out
    )


def told(report: Report, depth: Depth = Depth.LOAD) -> list[str]:
    return list(contradictions(report, depth=depth, registered=REGISTERED))


def test_a_valid_of_the_registered_files_contradicts_nothing() -> None:
    stranger = FileEvidence(path="notes.txt", length_bytes=3)
    assert told(valid(files=(*evidence(), stranger))) == []
    without = tuple(FileEvidence(path=file.path, length_bytes=10) for file in evidence())
    assert told(valid(Depth.STRUCTURE, files=without), Depth.STRUCTURE) == []


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "is in the manifest and not in the report"),
        (evidence(leave_out=".metadata"), "'.metadata' is in the manifest and not in the report"),
        (evidence(length_bytes=9), "has 9 bytes, and 10 in the manifest"),
        (evidence(checksum=None), "has the checksum None"),
        (evidence(checksum=parse_checksum("xxh3-128:" + "c" * 32)), "and xxh3-128:a"),
        (evidence(checksum=parse_checksum("sha256:" + "c" * 64)), "has the checksum sha256:c"),
        ((*evidence(), *evidence()), "stands 2 times"),
    ],
)
def test_a_valid_of_other_files_than_the_manifests_is_refused(
    files: tuple[FileEvidence, ...], why: str
) -> None:
    problems = told(valid(files=files))
    assert any(why in problem for problem in problems), problems


def test_a_valid_beyond_what_was_asked_for_is_refused() -> None:
    assert "structure was asked for" in told(valid(files=evidence()), Depth.STRUCTURE)[0]
    probe = CheckResult(name=CheckName.PROBE, status=CheckStatus.PASS)

    loaded = valid(files=evidence())
    assert told(replace(loaded, checks=(*loaded.checks, probe)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("forged")
    with (
        fresh_database("sqlite", folder=folder) as database,
        served_app(database, projects=("default", "other")) as running,
    ):
        running.client().post("/v1/stores", json={"name": "demo", "url": "/data/ckpts"})
        yield running


class Leased:
    """A lease of a checkpoint that was registered with a manifest."""

    def __init__(self, served: ServedApp, step: int) -> None:
        self.admin, self.worker = served.client(), served.client(Scope.WORK)
        files = [
            {
                "path": path,
                "role": role,
                "length_bytes": 10,
                "checksum": SUMS[path],
                "checksum_source": "memory",
            }
            for path, role in (("a.distcp", "shard"), (".metadata", "metadata"))
        ]
        manifest = {
            "manifest_version": 1, "run": "r", "step": step, "save_id": f"s{step}",
            "created_at": "2026-01-01T00:00:00Z", "origin": "save", "format": "dcp", "world_size": 1,
            "writer": {"torch": "2.13.0", "ckptguard": "0.1.0", "python": "3.12"}, "files": files,
        }  # fmt: skip
        body = {"location": {"store": "demo", "path": f"r/{step}"}, "step": step, "manifest": manifest}
        made = self.admin.post("/v1/runs/r/checkpoints", json=body)
        assert made.status_code == 201, made.text
        self.checkpoint_id = made.json()["checkpoint"]["id"]
        self.lease = self.worker.post(
            "/v1/leases", json={"worker": "w", "capabilities": {"stores": ["demo"]}}
        ).json()
        assert self.lease["checkpoint"]["id"] == self.checkpoint_id

    def judge(self, report: Report | dict[str, Any], **changes: Any) -> httpx.Response:  # noqa: ANN401
        """Hand a report in."""
        value = report_to_json(report) if isinstance(report, Report) else report
        return self.post({"report": value | changes})

    def post(self, value: object) -> httpx.Response:
        """Send any value as a verdict."""
        headers = {"Ckptguard-Lease": self.lease["token"], "Content-Type": "application/json"}
        path = f"/v1/leases/{self.lease['id']}/verdict"
        return self.worker.post(path, content=json.dumps(value), headers=headers)

    @property
    def verdict(self) -> object:
        """In force."""
        return self.admin.get(f"/v1/checkpoints/{self.checkpoint_id}").json()["verdict"]


@pytest.fixture(scope="module")
def leased(served: ServedApp) -> Leased:
    """Return one lease: whatever is refused leaves it alive."""
    return Leased(served, 1)


def _hidden_error(report: dict[str, Any]) -> None:
    finding = Finding(
        code=FindingCode.NON_FINITE, check=CheckName.NUMERICS, severity=Severity.WARNING, message="m"
    )
    check = CheckResult(name=CheckName.NUMERICS, status=CheckStatus.UNKNOWN, findings=(finding,))
    made = report_to_json(replace(valid(), checks=(*valid().checks, check)))
    report["findings"] = [made["findings"][0] | {"severity": "harmless"}]
    report["checks"] = made["checks"]


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another checkpoint's files": lambda report: report.update(files=[]),
    "a severity that nobody knows": _hidden_error,
    "a check twice": lambda report: report["checks"].append(report["checks"][0]),
    "a check that nobody knows": lambda report: report["checks"][0].update(name="trust_me"),
    "an unknown member": lambda report: report.update(is_forced=True),
    "seconds that are none": lambda report: report.update(seconds=-1),
    "a step below 0": lambda report: report.update(step=-1),
    "a count beyond 2^53": lambda report: report.update(bytes_read=10**400),
    "a text of 1 MB": lambda report: report.update(path="x" * 1_000_000),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_report_is_refused_and_nothing_of_it_is_kept(
    leased: Leased, forge: Callable[[dict[str, Any]], object]
) -> None:
    report = json.loads(json.dumps(report_to_json(valid(files=evidence()))))
    forge(report)
    answer = leased.judge(report)
    assert answer.status_code == 422, answer.text[:300]
    assert len(answer.content) < 400_000
    assert leased.verdict is None


def test_passes_beside_an_error_are_no_valid(served: ServedApp) -> None:
    leased = Leased(served, 20)
    report = report_to_json(valid(files=evidence()))
    finding = Finding(
        code=FindingCode.CRC_MISMATCH,
        check=CheckName.CONTENT,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message="x",
    )
    failed = CheckResult(name=CheckName.CONTENT, status=CheckStatus.FAIL, findings=(finding,))
    findings = report_to_json(replace(valid(), checks=(failed,)))["findings"]
    answer = leased.judge(report | {"findings": findings, "verdict": "VALID"})
    assert answer.status_code == 422, "a check that passes has no error"
    told_as_failed = json.loads(json.dumps(report | {"findings": findings}))
    next(check for check in told_as_failed["checks"] if check["name"] == "content")["status"] = "fail"
    assert leased.judge(told_as_failed).json()["verdict"] == "INVALID"


def test_missing_checks_are_no_valid(served: ServedApp) -> None:
    leased = Leased(served, 21)
    answer = leased.judge(report_to_json(valid(files=evidence())) | {"checks": [], "verdict": "VALID"})
    assert answer.json()["verdict"] == "UNKNOWN"


def test_texts_of_a_report_cannot_be_anything_but_text(served: ServedApp) -> None:
    leased = Leased(served, 22)
    evil = "\x1b]0;x\x07\r\nX-Evil: 1\r\n\r\n<script>\x9b31m\u202e\0\ud800"
    answer = leased.judge(valid(files=evidence(), format=evil, target=evil, path=evil, device=evil))
    assert answer.status_code == 200, answer.text
    shown = leased.admin.get(f"/v1/checkpoints/{leased.checkpoint_id}")
    assert shown.status_code == 200
    assert not any(byte < 0x20 for byte in shown.content)
    assert shown.headers["content-type"] == "application/json"
    assert "x-evil" not in shown.headers


def test_proven_is_only_what_the_manifest_of_the_writer_proves(served: ServedApp) -> None:
    leased = Leased(served, 23)
    refused = leased.judge(valid(files=evidence(leave_out="a.distcp"), provenance=Provenance.PROVEN))
    assert refused.status_code == 422
    good = leased.judge(valid(files=evidence(), provenance=Provenance.PROVEN))
    assert good.json() == {"verdict": "VALID", "is_in_force": True}


def test_an_absurd_speed_does_not_shrink_every_deadline_to_nothing(served: ServedApp) -> None:
    leased = Leased(served, 24)
    answer = leased.judge(valid(files=evidence(), bytes_read=2**53 - 1, seconds_reading=5e-324))
    assert answer.status_code == 200
    store = leased.admin.get("/v1/stores").json()["items"][0]
    assert store["bytes_per_s"] <= 1e12
    assert Path(store["url"]).name == "ckpts"

"""Reports made by hand, for everything that only shows them; commands that ask a scripted service."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ckptguard.cli.main import run
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import Report
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance, conclude, skipped
from tests.scripted_service import TOKEN, ScriptedService, scripted_service

MakeReport = Callable[..., Report]
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """Return a service whose answers the test writes down."""
    with scripted_service() as running:
        yield running


@pytest.fixture
def ask(
    service: ScriptedService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Return what runs a command that asks this service, and gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CKPTGUARD_URL", service.url)
    monkeypatch.setenv("CKPTGUARD_TOKEN", TOKEN)
    monkeypatch.delenv("CKPTGUARD_STORES", raising=False)

    def ask(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        out, err = capsys.readouterr()
        assert "\x1b" not in out + err
        assert TOKEN not in out + err
        assert "Traceback" not in err
        return code, out, err

    return ask


@pytest.fixture
def damage() -> Finding:
    """Return an error finding with all its evidence."""
    return Finding(
        code=FindingCode.CRC_MISMATCH,
        check=CheckName.CONTENT,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message="the CRC-32 of record data/0 does not match its bytes",
        file="__2_0.distcp",
        offset=1843200,
        length_bytes=262144,
        record="data/0",
        fqn="model.layers.0.attention.wq.weight",
        slice_offsets=(256, 0),
        slice_sizes=(128, 512),
        expected="crc32:1a2b3c4d",
        observed="crc32:99887766",
    )


@pytest.fixture
def make_report() -> MakeReport:
    """Return a maker of reports whose checks pass, but for the findings given."""

    def make(*findings: Finding, **changes: object) -> Report:
        checks = [_result(name, findings) for name in CheckName if name is not CheckName.PROBE]
        values: dict[str, Any] = {
            "target": "/runs/7/step-2",
            "path": "/runs/7/step-2",
            "format": "dcp",
            "checks": (*checks, skipped(CheckName.PROBE, "not asked for")),
            "provenance": Provenance.UNPROVEN,
            "device": "cpu",
            "started_at": datetime(2026, 11, 29, tzinfo=UTC),
            "seconds": 1.5,
            "seconds_reading": 0.1,
            "num_shards": 4,
            "num_items": 600,
            "num_tensors": 148,
            "bytes_total": 200_000_000,
            "bytes_read": 200_000_000,
            "step": 2,
            "versions": {"checks": "1", "ckptguard": "0.1.0", "torch": "2.13.0"},
        }
        return Report(**{**values, **changes})

    return make


def _result(name: CheckName, findings: tuple[Finding, ...]) -> CheckResult:
    own = [finding for finding in findings if finding.check is name]
    if name is CheckName.PROVENANCE and not own:
        return CheckResult(name=name, status=CheckStatus.UNKNOWN, reason="no save-time manifest")
    counts = {"files": 4, "items": 600} if name is CheckName.CONTENT else {"files": 4}
    seconds = 0.1 if name is CheckName.CONTENT else 0.0
    return conclude(name, own, counts=counts, seconds=seconds, bytes_read=int(seconds * 2_000_000_000))

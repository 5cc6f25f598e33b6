"""docs/findings.md and `FindingCode` say the same (design §3: codes are stable API)."""

import re
from pathlib import Path

import pytest

from ckptguard.model.finding import FindingCode, Severity
from ckptguard.model.verdict import CAPPING_CODES

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "findings.md").read_text(encoding="utf-8")
FIELDS = ("Means", "Severity", "Evidence", "Example", "Next")


def _sections() -> dict[str, str]:
    parts = re.split(r"^### `([a-z_]+)`$", PAGE, flags=re.MULTILINE)
    assert len(parts) > 1
    names = parts[1::2]
    assert len(names) == len(set(names)), "a code has two sections"
    return dict(zip(names, parts[2::2], strict=True))


def test_every_finding_code_has_a_section_and_every_section_a_code() -> None:
    assert set(_sections()) == {code.value for code in FindingCode}


@pytest.mark.parametrize("code", list(FindingCode))
def test_every_section_says_all_that_an_operator_needs(code: FindingCode) -> None:
    section = _sections()[code]
    assert [field for field in FIELDS if f"- **{field}:** " not in section] == []
    assert re.search(r"\*\*Severity:\*\* .*`(error|unknown|warning|info)`", section)


@pytest.mark.parametrize("code", sorted(CAPPING_CODES))
def test_every_section_of_a_capping_code_says_that_it_caps(code: FindingCode) -> None:
    assert "caps" in _sections()[code]


def test_every_severity_is_explained() -> None:
    assert [severity for severity in Severity if f"| `{severity}` |" not in PAGE] == []


@pytest.mark.parametrize("name", ["invariants.md", "threats.md"])
def test_every_test_that_a_page_names_exists(name: str) -> None:
    page = (PROJECT / "docs" / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", page))
    assert named
    written = "".join(
        path.read_text(encoding="utf-8") for path in sorted((PROJECT / "tests").rglob("test_*.py"))
    )
    assert [name for name in sorted(named) if f"def {name}(" not in written] == []


def test_every_threat_names_a_test() -> None:
    page = (PROJECT / "docs" / "threats.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    threats = [row for row in rows if not row.startswith(("| attack |", "| --- |"))]
    assert len(threats) > 20
    assert [row[:60] for row in threats if re.search(r"`test_[a-z0-9_]+`[^|]*\|$", row) is None] == []

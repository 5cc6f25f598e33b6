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


def test_every_named_test_of_the_invariants_exists() -> None:
    page = (PROJECT / "docs" / "invariants.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", page))
    assert named
    written = "".join(
        path.read_text(encoding="utf-8") for path in sorted((PROJECT / "tests").rglob("test_*.py"))
    )
    assert [name for name in sorted(named) if f"def {name}(" not in written] == []

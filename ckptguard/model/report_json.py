"""A report back from its JSON form (`report_to_json`), believed only as far as it has that form.

A service reads what its workers send: every problem is told, and nothing is repaired. What the
sender says of the verdict is not looked at; it is derived anew from the checks.
"""

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ckptguard.errors import FormatError
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.json_fields import Fields, Problems, TooManyProblemsError
from ckptguard.model.report import FileEvidence, Report, StepSummary
from ckptguard.model.tensor_list import count_lawful
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance

MAX_FINDINGS: Final = 1_000_000
MAX_FILES: Final = 10_000_000
"""As `Limits.max_files`: evidence of every file that a listing may hold."""
MAX_STEPS: Final = 1_000_000
MAX_NAMES: Final = 1_000
"""Counts of a check, versions of a report."""
MAX_TEXT_CHARS: Final = 16_384
"""Of a path or a reason; the texts of a finding bound themselves."""
_MAX_PROBLEMS: Final = 100
_DERIVED: Final = ("verdict", "basis", "assurance", "is_retryable")
_SCHEMA: Final = 1


def report_from_json(value: Mapping[str, Any]) -> Report:
    """Rebuild what `report_to_json` made; numerics, which are not in it, stay empty.

    Args:
        value: The JSON object, parsed; left as it is.

    Raises:
        FormatError: It was not made by `report_to_json`; `problems` says all that is wrong, each
            with its JSON pointer.

    Guarantees: `report_to_json(report_from_json(report_to_json(r))) == report_to_json(r)`.
    """
    problems = Problems()
    report = None
    with suppress(TooManyProblemsError):
        report = _report(Fields(dict(value), "", problems))
    if problems.lines or report is None:
        raise _refused(problems.lines)
    return report


def _refused(lines: Sequence[str]) -> FormatError:
    more = len(lines) - _MAX_PROBLEMS
    told = [*lines[:_MAX_PROBLEMS], *([f"and {more} more problems"] if more > 0 else [])]
    return FormatError("no report: " + "; ".join(told), problems=told)


def _report(fields: Fields) -> Report | None:
    if fields.integer("schema", instead=_SCHEMA) != _SCHEMA:
        fields.problems.note("/schema", f"not {_SCHEMA}: another form, which this version does not know")
        return None
    for name in _DERIVED:
        fields.members.pop(name, None)
    report = Report(
        target=_text(fields, "target"),
        path=_text(fields, "path"),
        format=_text(fields, "format"),
        provenance=fields.choice("provenance", Provenance, instead=Provenance.UNPROVEN),
        device=fields.nullable("device", fields.text),
        started_at=fields.moment("started_at"),
        seconds=fields.seconds("seconds"),
        seconds_reading=fields.seconds("seconds_reading"),
        num_shards=fields.count("shards"),
        num_items=fields.count("items"),
        num_tensors=fields.count("tensors"),
        bytes_total=fields.count("bytes_total"),
        bytes_read=fields.count("bytes_read"),
        step=fields.nullable("step", fields.count),
        steps=tuple(map(_step, _objects(fields, "steps", MAX_STEPS))),
        files=tuple(map(_file, _objects(fields, "files", MAX_FILES))),
        other_findings=_findings(fields, "other_findings"),
        checks=_checks(fields),
        versions=_versions(fields),
        manifest_identity=fields.nullable("manifest_identity", fields.checksum),
        tensor_list=_tensor_list(fields) if fields.has("tensor_list") else b"",
    )
    fields.refuse_rest()
    return report


def _tensor_list(fields: Fields) -> bytes:
    try:
        packed = b64decode(fields.text("tensor_list", instead=""), validate=True)
        count_lawful(packed)
    except ValueError as error:
        fields.problems.note("/tensor_list", f"no list of tensors: {error}")
        return b""
    return packed


def _objects(fields: Fields, key: str, limit: int) -> Iterator[Fields]:
    """Take an array of objects, unless it is longer than any report's."""
    found = fields.members.get(key)
    if isinstance(found, list) and len(found) > limit:
        fields.problems.note(f"{fields.at}/{key}", f"{len(found)} entries, limit {limit}")
        del fields.members[key]
        return iter(())
    return fields.objects(key)


def _text(fields: Fields, key: str) -> str:
    text = fields.text(key)
    if len(text) > MAX_TEXT_CHARS:
        fields.problems.note(f"{fields.at}/{key}", f"{len(text)} characters, limit {MAX_TEXT_CHARS}")
    return text


def _step(fields: Fields) -> StepSummary:
    step = StepSummary(
        step=fields.count("step"),
        path=_text(fields, "path"),
        format=_text(fields, "format"),
        is_committed=fields.flag("is_committed"),
    )
    fields.refuse_rest()
    return step


def _file(fields: Fields) -> FileEvidence:
    file = FileEvidence(
        path=_text(fields, "path"),
        length_bytes=fields.count("length_bytes"),
        checksum=fields.nullable("checksum", fields.checksum),
        version=fields.nullable("version", lambda key: _text(fields, key)),
        modified_at=fields.nullable("modified_at", fields.moment),
    )
    fields.refuse_rest()
    return file


def _versions(fields: Fields) -> dict[str, str]:
    inner = fields.fields_of("versions")
    if len(inner.members) > MAX_NAMES:
        fields.problems.note(inner.at, f"{len(inner.members)} entries, limit {MAX_NAMES}")
        return {}
    return {name: _text(inner, name) for name in tuple(inner.members)}


def _checks(fields: Fields) -> tuple[CheckResult, ...]:
    """Take the checks, each with its findings, which stand in a list of their own."""
    findings = _findings(fields, "findings")
    of_check: dict[CheckName, list[Finding]] = {}
    for finding in findings:
        of_check.setdefault(finding.check, []).append(finding)
    results = [_check(inner, of_check) for inner in _objects(fields, "checks", len(CheckName))]
    checks = tuple(result for result in results if result is not None)
    counts = Counter(check.name for check in checks)
    for name, count in counts.items():
        if count > 1:
            fields.problems.note("/checks", f"{name} stands {count} times")
    if len(checks) == len(results):
        for name in of_check.keys() - counts.keys():
            fields.problems.note("/findings", f"there is no check {name}, and findings of it")
    return checks


def _check(fields: Fields, of_check: Mapping[CheckName, Sequence[Finding]]) -> CheckResult | None:
    if fields.is_void:
        return None
    name = fields.choice("name", CheckName, instead=CheckName.EXISTENCE)
    values: dict[str, Any] = {
        "status": fields.choice("status", CheckStatus, instead=CheckStatus.FAIL),
        "reason": _text(fields, "reason"),
        "counts": _counts(fields),
        "seconds": fields.seconds("seconds"),
        "bytes_read": fields.count("bytes_read"),
    }
    fields.refuse_rest()
    try:
        return CheckResult(name=name, findings=tuple(of_check.get(name, ())), **values)
    except ValueError as error:
        fields.problems.note(fields.at, str(error))
        return None


def _counts(fields: Fields) -> dict[str, int]:
    inner = fields.fields_of("counts")
    if len(inner.members) > MAX_NAMES:
        fields.problems.note(inner.at, f"{len(inner.members)} entries, limit {MAX_NAMES}")
        return {}
    return {name: inner.count(name) for name in tuple(inner.members)}


def _findings(fields: Fields, key: str) -> tuple[Finding, ...]:
    found = [_finding(inner) for inner in _objects(fields, key, MAX_FINDINGS)]
    return tuple(finding for finding in found if finding is not None)


def _finding(fields: Fields) -> Finding | None:
    if fields.is_void:
        return None
    offsets, sizes = _slice(fields)
    values: dict[str, Any] = {
        "code": fields.choice("code", FindingCode, instead=FindingCode.LOAD_FAILED),
        "check": fields.choice("check", CheckName, instead=CheckName.EXISTENCE),
        "severity": fields.choice("severity", Severity, instead=Severity.INFO),
        "basis": fields.nullable("basis", lambda key: fields.choice(key, Basis, instead=Basis.DAMAGE)),
        "message": fields.text("message"),
        "is_retryable": fields.flag("is_retryable"),
        **{name: fields.nullable(name, fields.text) for name in _TEXTS},
        **{name: fields.nullable(name, fields.count) for name in ("offset", "length_bytes")},
    }
    fields.refuse_rest()
    try:
        return Finding(slice_offsets=offsets, slice_sizes=sizes, **values)
    except ValueError as error:
        fields.problems.note(fields.at, str(error))
        return None


_TEXTS: Final = ("file", "record", "fqn", "expected", "observed")


def _slice(fields: Fields) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    sliced = fields.nullable("slice", fields.fields_of)
    if sliced is None:
        return None, None
    offsets, sizes = sliced.integers("offsets"), sliced.integers("sizes")
    sliced.refuse_rest()
    return offsets, sizes

"""A checksum that differs is taken again, past every cache, before it condemns (design §3)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from ckptguard.checks.phrases import counted
from ckptguard.model.checksum import Checksum
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import FileEvidence
from ckptguard.operations.changes import is_same
from ckptguard.scan.files import ScanSetting, scan_files, whole_file
from ckptguard.scan.result import FileScan
from ckptguard.storage.protocol import ObjectStat

MAX_CONFIRMED_FILES: Final = 100
"""Files hashed twice; one confirmed mismatch decides, and the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedChecksums:
    """What two hashings agree on.

    Args:
        observed: Evidence; without the checksum of files whose two hashings differ, or that
            were not hashed twice though they should have been.
        doubtful: Files of which nothing is to be compared.
        findings: Of check `content`: why.
    """

    observed: Mapping[str, FileEvidence]
    doubtful: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


def confirm_checksums(
    expected: Mapping[str, Checksum],
    observed: Mapping[str, FileEvidence],
    listed: Mapping[str, ObjectStat],
    setting: ScanSetting,
) -> ConfirmedChecksums:
    """Hash again every file whose checksum is not the expected one.

    Args:
        expected: Of the manifests, by path.
        observed: What the pass over the bytes gave.
        listed: What the store said of them before it.
        setting: Where they lie.
    """
    suspects = [path for path in sorted(expected) if _differs(observed.get(path), expected[path])]
    if not suspects:
        return ConfirmedChecksums(observed=observed)
    again = tuple(_hashed_again(suspects, setting))
    findings = [finding for scan in again for finding in _doubts(scan, observed, listed)]
    doubtful = {finding.file for finding in findings if finding.file} | set(suspects[MAX_CONFIRMED_FILES:])
    if len(suspects) > MAX_CONFIRMED_FILES:
        findings.append(_and_more(suspects[MAX_CONFIRMED_FILES:]))
    return ConfirmedChecksums(
        observed={
            path: replace(evidence, checksum=None) if path in doubtful else evidence
            for path, evidence in observed.items()
        },
        doubtful=frozenset(doubtful),
        findings=tuple(findings),
    )


def _differs(evidence: FileEvidence | None, expected: Checksum) -> bool:
    if evidence is None or evidence.checksum is None:
        return False
    return evidence.checksum.algorithm is expected.algorithm and evidence.checksum != expected


def _hashed_again(suspects: list[str], setting: ScanSetting) -> Iterator[FileScan]:
    shards = [whole_file(path) for path in islice(suspects, MAX_CONFIRMED_FILES)]
    return scan_files(shards, replace(setting, is_direct=True))


def _doubts(
    scan: FileScan, observed: Mapping[str, FileEvidence], listed: Mapping[str, ObjectStat]
) -> Iterator[Finding]:
    first = observed[scan.path].checksum
    yield from scan.findings  # not delivered, or written meanwhile
    if scan.findings or first in scan.checksums:
        return
    if not is_same(scan.length_bytes, scan.version, listed[scan.path]):
        yield _doubt(FindingCode.CHANGED_DURING_CHECK, scan, first, "was written since it was listed")
        return
    what = "reads differently each time; the medium or its path is at fault"
    yield _doubt(FindingCode.UNSTABLE_READ, scan, first, what)


def _doubt(code: FindingCode, scan: FileScan, first: Checksum | None, what: str) -> Finding:
    return Finding(
        code=code,
        check=CheckName.CONTENT,
        severity=Severity.UNKNOWN,
        is_retryable=True,
        message=f"{scan.path} {what}",
        file=scan.path,
        expected=str(first),
        observed=", ".join(map(str, scan.checksums)),
    )


def _and_more(paths: list[str]) -> Finding:
    return Finding(
        code=FindingCode.CHECKSUM_MISMATCH,
        check=CheckName.CONTENT,
        severity=Severity.UNKNOWN,
        message=f"{counted(len(paths), 'more file')} differ from the manifest, {paths[0]} first;"
        " not hashed twice",
        file=paths[0],
    )

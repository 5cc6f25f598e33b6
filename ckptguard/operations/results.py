"""From everything that was found to one result per check. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ckptguard.canary.outcome import Ending
from ckptguard.checks.globals import check_object_globals
from ckptguard.checks.numerics import check_numerics
from ckptguard.checks.phrases import some_of
from ckptguard.formats.checkpoint import distinct_shards
from ckptguard.formats.denied_globals import is_denied
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import BARE_ENCODINGS, Encoding, Layout, Shard
from ckptguard.model.policy import Depth, NumericsMode, Policy
from ckptguard.model.report import TensorNumerics
from ckptguard.model.verdict import CheckResult, CheckStatus, conclude, skipped
from ckptguard.operations.look import Look
from ckptguard.operations.reading import Reading
from ckptguard.operations.reuse import LOADABLE
from ckptguard.scan.result import FileScan

_WITHOUT_CHECKSUM: Final = BARE_ENCODINGS | {Encoding.OPAQUE, Encoding.ZARR_CHUNKS}


def structure_results(
    seen: Look, findings: Sequence[Finding], *, seconds: float, bytes_read: int
) -> list[CheckResult]:
    """Conclude checks 1-3.

    Args:
        seen: Counts come from here.
        findings: Of all checks; each is taken where it belongs.
        seconds: Spent on listing and metadata; told with `coverage`, which needed it.
        bytes_read: Of metadata.
    """
    layouts = seen.checkpoint.layouts
    shards = {shard.path for layout in layouts for shard in layout.shards}
    counts: dict[CheckName, dict[str, int]] = {
        CheckName.EXISTENCE: {"files": len(seen.listing.files), "shards": len(shards)},
        CheckName.BYTE_COUNT: {"bytes": sum(stat.length_bytes for stat in seen.listing.files.values())},
        CheckName.COVERAGE: {
            "tensors": sum(len(layout.tensors) for layout in layouts),
            "objects": sum(len(layout.objects) for layout in layouts),
        },
    }
    results = [
        conclude(name, of_check(findings, name), counts=counts[name])
        for name in (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE)
    ]
    if not layouts:
        results = [_nothing_to_judge(result) for result in results]
    results[-1] = replace(results[-1], seconds=seconds, bytes_read=bytes_read)
    return results


def content_result(
    seen: Look, reading: Reading, findings: Sequence[Finding], *, policy: Policy, proven: frozenset[str]
) -> CheckResult:
    """Conclude check 4: an unread byte never makes it pass.

    Args:
        seen: What should have been read.
        reading: What was.
        findings: Of all checks, those of the manifest included.
        policy: Depth and objects.
        proven: Files whose checksum equals the manifest's: these need no CRC.
    """
    if policy.depth is Depth.STRUCTURE:
        return skipped(CheckName.CONTENT, "depth structure was asked for")
    objects = {path: scan.object_globals for path, scan in reading.scans.items() if scan.object_globals}
    content = [  # what names a tensor and a byte first, then what names a file
        *(finding for scan in reading.scans.values() for finding in scan.findings if _is_content(finding)),
        *of_check(findings, CheckName.CONTENT),
        *(finding for finding in reading.findings if _is_content(finding)),
        *of_check(check_object_globals(objects, is_denied=is_denied, policy=policy), CheckName.CONTENT),
        *_format_limits(seen.checkpoint.layouts, reading.scans, proven),
    ]
    result = conclude(
        CheckName.CONTENT,
        content,
        counts={
            "files": len(reading.scans),
            "items": sum(scan.items for scan in reading.scans.values()),
            "records": sum(scan.records for scan in reading.scans.values()),
            **_reuse_counts(reading),
        },
        seconds=reading.seconds,
        bytes_read=sum(scan.bytes_read for scan in reading.scans.values()),
    )
    result = _never_pass_unread(result, _unread(seen.checkpoint.layouts, reading.scans))
    return result if _has_metadata(seen) else _nothing_to_judge(result)


def _reuse_counts(reading: Reading) -> dict[str, int]:
    """Say how much of it an earlier attempt has read, where it did."""
    if not reading.reused:
        return {}
    reused = [reading.scans[path] for path in sorted(reading.reused)]
    return {
        "files_reused": len(reused),
        "bytes_reused": sum(scan.length_bytes for scan in reused),
    }


def load_result(seen: Look, reading: Reading, findings: Sequence[Finding], *, policy: Policy) -> CheckResult:
    """Conclude check 5."""
    if policy.depth is not Depth.LOAD:
        return skipped(CheckName.LOAD, f"depth {policy.depth} was asked for")
    loads = [finding for scan in reading.scans.values() for finding in scan.findings if _is_load(finding)]
    result = conclude(
        CheckName.LOAD,
        [*of_check((*findings, *reading.findings), CheckName.LOAD), *loads],
        counts={"items": sum(scan.items_loaded for scan in reading.scans.values())},
        seconds=reading.seconds if reading.outcome is not None else 0.0,
    )
    result = _never_pass_unloaded(result, seen.checkpoint.layouts, reading)
    return result if _has_metadata(seen) else _nothing_to_judge(result)


def unbuilt_classes(seen: Look, reading: Reading, *, policy: Policy) -> tuple[str, ...]:
    """Return the classes that objects in shards need and that nobody vouched for, sorted."""
    shards = {shard.path for layout in seen.checkpoint.layouts for shard in layout.shards}
    objects = (scan.object_globals.values() for path, scan in reading.scans.items() if path in shards)
    names = {name for needed in objects for names in needed for name in names}
    return tuple(sorted(names - policy.allowed_globals))


def with_stock(result: CheckResult, findings: Sequence[Finding], *, refusal: str | None) -> CheckResult:
    """Conclude check 5 after `--load stock`.

    Args:
        result: What our own load gave.
        findings: What stock gave.
        refusal: Why stock was not run; None if it was.
    """
    if refusal is not None:
        return replace(result, status=CheckStatus.UNKNOWN, reason=f"stock torch was not run: {refusal}")
    if not findings:
        return result
    return conclude(
        CheckName.LOAD, [*result.findings, *findings], counts=result.counts, seconds=result.seconds
    )


def numerics_result(
    seen: Look, numerics: Mapping[str, TensorNumerics], reading: Reading, *, policy: Policy
) -> CheckResult:
    """Conclude check 7."""
    if policy.numerics is NumericsMode.OFF:
        return skipped(CheckName.NUMERICS, "switched off")
    unmeasured = _unmeasured(seen, reading) if policy.numerics is NumericsMode.ENFORCE else ()
    if reading.outcome is None and not unmeasured:
        return skipped(CheckName.NUMERICS, "values are measured where they are loaded")
    findings = [*check_numerics(numerics, policy.numerics), *unmeasured]
    result = conclude(CheckName.NUMERICS, findings, counts={"tensors": len(numerics)})
    is_done = reading.outcome is not None and reading.outcome.ending is Ending.DONE
    if result.status is CheckStatus.PASS and not is_done:
        return replace(result, status=CheckStatus.UNKNOWN, reason="the load did not finish")
    return result


def _unmeasured(seen: Look, reading: Reading) -> tuple[Finding, ...]:
    """Doubt what is to be enforced and was not looked at: files whose values no load measures."""
    is_measured = LOADABLE if reading.outcome is not None else frozenset()
    shards = [shard for shard in distinct_shards(seen.checkpoint.layouts) if shard.min_length_bytes]
    unmeasured = [shard.path for shard in shards if shard.encoding not in is_measured]
    if not unmeasured:
        return ()
    return (
        Finding(
            code=FindingCode.NON_FINITE,
            check=CheckName.NUMERICS,
            severity=Severity.UNKNOWN,
            message=f"finite values are to be enforced, and those of {some_of(unmeasured)} were not measured:"
            " that takes depth load, torch, and tensors stored one by one",
            file=unmeasured[0],
            expected="finite values",
            observed="not measured",
        ),
    )


def merge_numerics(scans: Iterable[FileScan]) -> dict[str, TensorNumerics]:
    """Put together what several shards measured of one tensor."""
    merged: dict[str, TensorNumerics] = {}
    for scan in scans:
        for fqn, part in scan.numerics.items():
            known = merged.get(fqn)
            merged[fqn] = part if known is None else _widest(known, part)
    return merged


def of_check(findings: Iterable[Finding], name: CheckName) -> list[Finding]:
    """Return the findings that belong to one check."""
    return [finding for finding in findings if finding.check is name]


def _is_content(finding: Finding) -> bool:
    return finding.check is CheckName.CONTENT


def _is_load(finding: Finding) -> bool:
    return finding.check is CheckName.LOAD


def _has_metadata(seen: Look) -> bool:
    """Say whether anything is known of what should be read; else reading nothing proves nothing."""
    layouts = seen.checkpoint.layouts
    return any(layout.metadata_files or layout.shards for layout in layouts)


def _nothing_to_judge(result: CheckResult) -> CheckResult:
    if result.status is not CheckStatus.PASS:
        return result
    return replace(result, status=CheckStatus.UNKNOWN, reason="no metadata says what to read")


def _widest(one: TensorNumerics, other: TensorNumerics) -> TensorNumerics:
    values = (one.minimum, other.minimum, one.maximum, other.maximum)
    not_a_number = next((value for value in values if value != value), None)  # noqa: PLR0124 - NaN
    return TensorNumerics(
        minimum=min(one.minimum, other.minimum) if not_a_number is None else not_a_number,
        maximum=max(one.maximum, other.maximum) if not_a_number is None else not_a_number,
        is_finite=one.is_finite and other.is_finite,
        is_zero=one.is_zero and other.is_zero,
        is_denormal=(one.is_denormal or one.is_zero)
        and (other.is_denormal or other.is_zero)
        and not (one.is_zero and other.is_zero),
    )


def _unread(layouts: Sequence[Layout], scans: Mapping[str, FileScan]) -> list[str]:
    return sorted(
        shard.path for shard in distinct_shards(layouts) if not _is_read(shard, scans.get(shard.path))
    )


def _is_read(shard: Shard, scan: FileScan | None) -> bool:
    return scan is not None and bool(scan.checksums) and scan.items == len(shard.items)


def _never_pass_unread(result: CheckResult, unread: Sequence[str]) -> CheckResult:
    if result.status is not CheckStatus.PASS or not unread:
        return result
    return replace(
        result, status=CheckStatus.UNKNOWN, reason=f"{len(unread)} file(s) not read, {unread[0]} first"
    )


def _never_pass_unloaded(result: CheckResult, layouts: Sequence[Layout], reading: Reading) -> CheckResult:
    if result.status is not CheckStatus.PASS:
        return result
    shards = distinct_shards([layout for layout in layouts if not layout.is_companion])
    scans = [reading.scans[shard.path] for shard in shards if shard.path in reading.scans]
    missing = sum(len(shard.items) for shard in shards) - sum(scan.items_loaded for scan in scans)
    if missing == 0:
        return result
    damaged = any(
        finding.severity is Severity.ERROR for scan in reading.scans.values() for finding in scan.findings
    )
    return replace(
        result,
        status=CheckStatus.FAIL if damaged else CheckStatus.UNKNOWN,
        reason=f"{missing} item(s) did not load" + (": their bytes are damaged" if damaged else ""),
    )


def _format_limits(
    layouts: Sequence[Layout], scans: Mapping[str, FileScan], proven: frozenset[str]
) -> list[Finding]:
    """Say what the format cannot prove, once per kind, for files that no manifest proves."""
    shards = [shard for layout in layouts for shard in layout.shards if shard.path not in proven]
    without_crc = [shard for shard in shards if shard.path in scans and scans[shard.path].items_without_crc]
    without_checksum = [
        shard for shard in shards if shard.encoding in _WITHOUT_CHECKSUM and shard.min_length_bytes
    ]
    return [
        *_limit(
            without_crc,
            FindingCode.CRC_ABSENT,
            "written with CRC-32 switched off, so nothing in them proves their content",
        ),
        *_limit(
            without_checksum,
            FindingCode.NO_CHECKSUM,
            "of a format without checksums, and no manifest was given, so nothing proves their content",
        ),
    ]


def _limit(shards: Sequence[Shard], code: FindingCode, why: str) -> list[Finding]:
    if not shards:
        return []
    return [
        Finding(
            code=code,
            check=CheckName.CONTENT,
            severity=Severity.WARNING,
            message=f"{len(shards)} file(s), {shards[0].path} first, are {why}",
            file=shards[0].path,
        )
    ]

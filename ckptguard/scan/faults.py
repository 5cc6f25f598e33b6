"""From a problem inside an item to a finding: only after a second look past every cache."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ckptguard.errors import StoreError
from ckptguard.formats.protocol import ItemReport, Problem
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Item, Shard
from ckptguard.model.policy import Limits
from ckptguard.scan.items import verify_item
from ckptguard.scan.spans import BLOCK_BYTES
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store

MAX_FINDINGS_PER_FILE: Final = 100
"""Damaged items named one by one; the rest of a file is one counting finding."""

_SEVERITIES: Final = {
    FindingCode.LIMIT_EXCEEDED: Severity.UNKNOWN,
    FindingCode.OBJECT_NOT_BUILT: Severity.UNKNOWN,
    FindingCode.READER_NOT_INSTALLED: Severity.WARNING,
}


def confirm(
    store: Store, path: str, shard: Shard, suspects: list[tuple[Item, ItemReport]], *, limits: Limits
) -> tuple[list[Finding], int]:
    """Look again at every suspect item, past the cache (design §3: a fault is confirmed).

    The same wrong bytes give the same problems, texts of the observed bytes included:
    the fault stands. Different ones are `unstable_read`.

    Args:
        store: Where the shard lies.
        path: The shard in the store.
        shard: The shard as the layout names it.
        suspects: Items with problems, as first seen.
        limits: As in the first pass.

    Returns:
        The findings, and the bytes read for them.
    """
    unread = [(item, report) for item, report in suspects if _is_unread(report)]
    faulty = [(item, report) for item, report in suspects if not _is_unread(report)]
    named = faulty[:MAX_FINDINGS_PER_FILE]
    findings = _summed_up(shard, unread)
    bytes_read = 0
    try:
        with store.open(path) as reader:
            for item, first in named:
                second = verify_item(item, pieces_of(reader, item), limits=limits, encoding=shard.encoding)
                bytes_read += item.length_bytes
                findings.extend(_judge(shard, item, first, second))
    except StoreError as error:
        findings.append(store_finding(error, file=shard.path))
    if len(faulty) > len(named):
        findings.append(_and_more(shard, faulty[len(named) :]))
    return findings, bytes_read


def store_finding(error: StoreError, *, file: str, check: CheckName = CheckName.CONTENT) -> Finding:
    """Say that a store did not deliver a file: UNKNOWN, never INVALID.

    Time may bring back what is not there now, a root that is not mounted too; it lifts no refusal.
    """
    codes = {
        "access_denied": FindingCode.ACCESS_DENIED,
        "object_not_found": FindingCode.CHANGED_DURING_CHECK,
        "path_escape": FindingCode.PATH_ESCAPE,
    }
    code = codes.get(error.code, FindingCode.STORE_UNAVAILABLE)
    return Finding(
        code=code,
        check=check,
        severity=Severity.UNKNOWN,
        file=file,
        message=f"{file} could not be read: {error}",
        is_retryable=code in (FindingCode.STORE_UNAVAILABLE, FindingCode.CHANGED_DURING_CHECK),
    )


def changed_finding(
    file: str, listed: ObjectStat, *, observed: str, check: CheckName = CheckName.CONTENT
) -> Finding:
    """Say that a file was written while it was checked: what was seen of it is of no version.

    Args:
        file: Relative to the checkpoint's root.
        listed: What the store said of it first.
        observed: What it said later.
        check: Which check it keeps from an answer.
    """
    return Finding(
        code=FindingCode.CHANGED_DURING_CHECK,
        check=check,
        severity=Severity.UNKNOWN,
        is_retryable=True,
        file=file,
        message=f"{file} was written while it was checked",
        expected=f"{listed.length_bytes} bytes, version {listed.version}",
        observed=observed,
    )


def _is_unread(report: ItemReport) -> bool:
    return all(problem.code in _SEVERITIES for problem in report.problems)


def _summed_up(shard: Shard, unread: list[tuple[Item, ItemReport]]) -> list[Finding]:
    """One finding per reason that items of this shard were not read, however many they are."""
    firsts: dict[tuple[FindingCode, str], tuple[Item, Problem]] = {}
    counts: Counter[tuple[FindingCode, str]] = Counter()
    for item, report in unread:
        for problem in report.problems:
            key = (problem.code, problem.message)
            firsts.setdefault(key, (item, problem))
            counts[key] += 1
    return [
        replace(
            _finding(shard, item, problem),
            message=f"{counts[key]} item(s) of {shard.path}, {item.fqn} first: {problem.message}",
        )
        for key, (item, problem) in firsts.items()
    ]


def pieces_of(reader: RangeReader, item: Item) -> Iterator[memoryview]:
    """Read one item again, past the cache, in pieces that live until the next."""
    reader.forget(item.offset, item.length_bytes)
    buffer = memoryview(bytearray(min(BLOCK_BYTES, item.length_bytes)))
    end = item.offset + item.length_bytes
    for offset in range(item.offset, end, BLOCK_BYTES):
        view = buffer[: min(BLOCK_BYTES, end - offset)]
        yield view[: reader.readinto(view, offset)]


def _judge(shard: Shard, item: Item, first: ItemReport, second: ItemReport) -> Iterator[Finding]:
    if first.problems == second.problems:
        for problem in first.problems:
            yield _finding(shard, item, problem)
        return
    first_text, second_text = (_observed(report) for report in (first, second))
    yield Finding(
        code=FindingCode.UNSTABLE_READ,
        check=CheckName.CONTENT,
        severity=Severity.UNKNOWN,
        is_retryable=True,
        message=f"{item.fqn} in {shard.path} reads differently each time; the medium or its path is at fault",
        file=shard.path,
        offset=item.offset,
        length_bytes=item.length_bytes,
        fqn=item.fqn,
        expected=first_text,
        observed=second_text,
    )


def _observed(report: ItemReport) -> str:
    return (
        "; ".join(f"{p.code} {p.record or ''} {p.observed or ''}".strip() for p in report.problems) or "sound"
    )


def _finding(shard: Shard, item: Item, problem: Problem) -> Finding:
    severity = _SEVERITIES.get(problem.code, Severity.ERROR)
    # Offsets inside a transformed item count decoded bytes, which have no place in the file.
    is_whole = bool(item.transforms) or problem.length_bytes is None
    place = f" {list(item.slice.offsets)}+{list(item.slice.sizes)}" if item.slice is not None else ""
    return Finding(
        code=problem.code,
        check=CheckName.CONTENT,
        severity=severity,
        basis=Basis.DAMAGE if severity is Severity.ERROR else None,
        message=f"{item.fqn}{place} in {shard.path}: {problem.message}",
        file=shard.path,
        offset=item.offset if is_whole else item.offset + (problem.offset or 0),
        length_bytes=item.length_bytes if is_whole else problem.length_bytes,
        record=problem.record,
        fqn=item.fqn,
        slice_offsets=item.slice.offsets if item.slice is not None else None,
        slice_sizes=item.slice.sizes if item.slice is not None else None,
        expected=problem.expected,
        observed=problem.observed,
    )


def _and_more(shard: Shard, rest: list[tuple[Item, ItemReport]]) -> Finding:
    item, report = rest[0]
    finding = _finding(shard, item, report.problems[0])
    return Finding(
        code=finding.code,
        check=finding.check,
        severity=Severity.UNKNOWN,
        message=f"{len(rest)} more items of {shard.path} look damaged; not looked at twice",
        file=shard.path,
        offset=item.offset,
        fqn=item.fqn,
    )

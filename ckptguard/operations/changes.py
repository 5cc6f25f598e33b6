"""A verdict binds to the bytes it saw: what was written since the listing is not judged by it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ckptguard.checks.against_manifest import referenced_paths
from ckptguard.checks.settle import MAY_SETTLE, in_motion
from ckptguard.errors import ObjectNotFoundError, StoreError
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.operations.look import Look, metadata_paths
from ckptguard.operations.reading import Reading
from ckptguard.scan.faults import changed_finding, store_finding
from ckptguard.scan.files import ScanSetting, scan_files, whole_file
from ckptguard.scan.result import FileScan
from ckptguard.storage.protocol import ObjectStat, Store

_WHY = "the metadata was written, or read differently, meanwhile, so this rests on nothing"


def only_as_listed(seen: Look, reading: Reading) -> Reading:
    """Take back what was read of files that were another version when they were listed.

    The metadata speaks of the version listed with it; another one may be of another save.
    """
    scans = {path: _as_listed(scan, seen.listing.files.get(path)) for path, scan in reading.scans.items()}
    return replace(reading, scans=scans)


def metadata_changes(seen: Look, store: Store) -> tuple[Finding, ...]:
    """Ask for every metadata file once more, after all is read; report what is another version.

    Args:
        seen: What was listed.
        store: Asked, without reading.
    """
    return _changes(seen, metadata_paths(seen), store)


def file_changes(seen: Look, store: Store) -> tuple[Finding, ...]:
    """As `metadata_changes`, for every metadata file and shard: what a load opens."""
    return _changes(seen, referenced_paths(seen.checkpoint.layouts), store)


def confirmed_by_name(seen: Look, store: Store) -> tuple[Finding, ...]:
    """Return the findings of a look, after asking by name for each file that condemns it.

    A listing may lag by more than the settle time. Where a file that it leaves out is
    there, or one that it shows short is not, the listing proves nothing about any file.

    Args:
        seen: What was listed, twice.
        store: Asked, without reading.
    """
    suspects = [
        finding.file
        for finding in seen.findings
        if finding.severity is Severity.ERROR and finding.code in MAY_SETTLE and finding.file
    ]
    if all(_is_as_listed(seen, path, store) for path in dict.fromkeys(suspects)):
        return seen.findings
    return tuple(
        in_motion(finding, "the store says otherwise when asked for a file by name")
        if finding.code in MAY_SETTLE
        else finding
        for finding in seen.findings
    )


def _is_as_listed(seen: Look, path: str, store: Store) -> bool:
    listed = seen.listing.files.get(path)
    try:
        now = store.stat(seen.listing.in_store(path))
    except ObjectNotFoundError:
        return listed is None
    except StoreError:
        return False  # nobody knows
    return listed is not None and is_same(now.length_bytes, now.version, listed)


def metadata_rereads(seen: Look, setting: ScanSetting) -> tuple[Finding, ...]:
    """Hash every metadata file again, past every cache; report what was read differently before.

    Asked for only where something condemns: wrongly read metadata makes sound shards look damaged.
    """
    read = {file.path: file for layout in seen.checkpoint.layouts for file in layout.metadata_files}
    again = scan_files([whole_file(path) for path in read], replace(setting, is_direct=True))
    return tuple(finding for scan in again for finding in _reread(scan, read[scan.path].checksum))


def _reread(scan: FileScan, first: Checksum) -> Iterator[Finding]:
    yield from scan.findings
    if scan.checksums and first.algorithm is Algorithm.XXH3_128 and first not in scan.checksums:
        yield Finding(
            code=FindingCode.UNSTABLE_READ,
            check=CheckName.EXISTENCE,
            severity=Severity.UNKNOWN,
            is_retryable=True,
            message=f"{scan.path} reads differently each time; the medium or its path is at fault",
            file=scan.path,
            expected=str(first),
            observed=str(scan.checksums[0]),
        )


def doubted(findings: Sequence[Finding]) -> list[Finding]:
    """Turn what condemns into doubt, where the metadata that it rests on is gone."""
    return [in_motion(finding, _WHY) for finding in findings]


def doubted_reading(reading: Reading) -> Reading:
    """As `doubted`, for what was found in each file."""
    scans = {
        path: replace(scan, findings=tuple(doubted(scan.findings)), numerics={})
        for path, scan in reading.scans.items()
    }
    return replace(reading, scans=scans, findings=tuple(doubted(reading.findings)))


def _as_listed(scan: FileScan, listed: ObjectStat | None) -> FileScan:
    if listed is None or not scan.checksums or is_same(scan.length_bytes, scan.version, listed):
        return scan
    observed = f"{scan.length_bytes} bytes, version {scan.version}"
    return FileScan(
        path=scan.path,
        length_bytes=scan.length_bytes,
        findings=(changed_finding(scan.path, listed, observed=observed),),
        bytes_read=scan.bytes_read,
    )


def is_same(length_bytes: int, version: str | None, listed: ObjectStat) -> bool:
    """Say whether a file is as it was listed; where a store keeps no versions, as far as it tells."""
    is_version = version is None or listed.version is None or version == listed.version
    return is_version and length_bytes == listed.length_bytes


def _changes(seen: Look, paths: Sequence[str], store: Store) -> tuple[Finding, ...]:
    changes = (_changed_since(seen, path, store) for path in paths)
    return tuple(finding for finding in changes if finding is not None)


def _changed_since(seen: Look, path: str, store: Store) -> Finding | None:
    listed = seen.listing.files.get(path)
    if listed is None:
        return None
    try:
        now = store.stat(seen.listing.in_store(path))
    except ObjectNotFoundError:
        return changed_finding(path, listed, observed="no such file", check=CheckName.EXISTENCE)
    except StoreError as error:
        return store_finding(error, file=path, check=CheckName.EXISTENCE)
    if is_same(now.length_bytes, now.version, listed):
        return None
    observed = f"{now.length_bytes} bytes, version {now.version}"
    return changed_finding(path, listed, observed=observed, check=CheckName.EXISTENCE)


def has_changed(findings: Sequence[Finding]) -> bool:
    """Say whether the metadata is another one than was judged by, as far as anybody knows."""
    codes = {FindingCode.CHANGED_DURING_CHECK, FindingCode.UNSTABLE_READ}
    return any(finding.code in codes for finding in findings)

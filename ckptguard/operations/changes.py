"""A verdict binds to the bytes it saw: what was written since the listing is not judged by it."""

from collections.abc import Sequence
from dataclasses import replace

from ckptguard.checks.settle import in_motion
from ckptguard.errors import ObjectNotFoundError, StoreError
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.operations.look import Look, metadata_paths
from ckptguard.operations.reading import Reading
from ckptguard.scan.faults import changed_finding, store_finding
from ckptguard.scan.result import FileScan
from ckptguard.storage.protocol import ObjectStat, Store

_WHY = "the metadata was written meanwhile, so nobody has seen these bytes at rest"


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
    changes = (_changed_since(seen, path, store) for path in metadata_paths(seen))
    return tuple(finding for finding in changes if finding is not None)


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
    """Say whether the metadata is known to be another one by now."""
    return any(
        finding.code is FindingCode.CHANGED_DURING_CHECK and finding.severity is Severity.UNKNOWN
        for finding in findings
    )

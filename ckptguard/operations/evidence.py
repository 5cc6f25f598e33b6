"""What was seen of each file: a verdict binds to it. Pure."""

from collections.abc import Mapping, Sequence

from ckptguard.model.checksum import Checksum
from ckptguard.model.report import FileEvidence
from ckptguard.operations.held import Held
from ckptguard.operations.look import Look
from ckptguard.operations.reading import Reading


def evidence_of(seen: Look, reading: Reading, held: Held) -> dict[str, FileEvidence]:
    """Return what was seen of each file: read, or only listed; with the checksum its manifest speaks of."""
    checksums: dict[str, tuple[Checksum, ...]] = {
        file.path: (file.checksum,) for layout in seen.checkpoint.layouts for file in layout.metadata_files
    }
    checksums |= {scan.path: scan.checksums for scan in reading.scans.values() if scan.checksums}
    expected = held.expected
    return {
        path: FileEvidence(
            path=path,
            length_bytes=stat.length_bytes,
            checksum=_comparable(checksums.get(path, ()), expected.get(path)),
            version=stat.version,
            modified_at=stat.modified_at,
        )
        for path, stat in seen.listing.files.items()
    }


def _comparable(observed: Sequence[Checksum], expected: Checksum | None) -> Checksum | None:
    for checksum in observed:
        if expected is not None and checksum.algorithm is expected.algorithm:
            return checksum
    return observed[0] if observed else None


def intact_files(reading: Reading) -> frozenset[str]:
    """Return files whose own CRCs hold: another checksum there means another save, not damage."""
    return frozenset(
        scan.path
        for scan in reading.scans.values()
        if scan.items and not scan.findings and not scan.items_without_crc and not scan.items_unproven
    )


def proven_files(held: Held, observed: Mapping[str, FileEvidence]) -> frozenset[str]:
    """Return the files whose checksum is the one that a manifest names."""
    return frozenset(
        path
        for path, checksum in held.expected.items()
        if path in observed and observed[path].checksum == checksum
    )


def bytes_of_canary(reading: Reading) -> int:
    """Return the bytes that the child took from storage, which no store of this process counted."""
    scans = reading.outcome.scans.values() if reading.outcome is not None else ()
    return sum(scan.bytes_read for scan in scans)

"""Small metadata files, whatever the format: read whole, hashed, and their faults put into words."""

from functools import partial
from typing import Any, Final

import xxhash

from ckptguard.errors import FormatError
from ckptguard.formats.dcp_findings import shown
from ckptguard.formats.safetensors_json import parse_json_object
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import MetadataFile
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store, read_whole

MAX_JSON_BYTES: Final = 1 << 30
"""Of one JSON text: Python's objects take ten to twenty times as much."""

_error = partial(Finding, severity=Severity.ERROR, basis=Basis.DAMAGE)


def read_file(store: Store, listing: Listing, path: str, limits: Limits) -> tuple[bytes, MetadataFile]:
    """Read one listed metadata file.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: Larger than the limits allow.
    """
    return read_bounded(store, listing, path, max_bytes=min(limits.max_metadata_bytes, MAX_JSON_BYTES))


def read_bounded(store: Store, listing: Listing, path: str, *, max_bytes: int) -> tuple[bytes, MetadataFile]:
    """Read one listed file whole, and hash it.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: Larger than `max_bytes`.
    """
    data = read_whole(store, listing.in_store(path), max_bytes=max_bytes)
    checksum = Checksum(algorithm=Algorithm.XXH3_128, hex_digits=xxhash.xxh3_128_hexdigest(data))
    return data, MetadataFile(path=path, length_bytes=len(data), checksum=checksum)


def parse_json(data: bytes, *, file: str) -> tuple[dict[str, Any] | None, tuple[Finding, ...]]:
    """Parse a file that has to hold one JSON object.

    Returns:
        The object and nothing; or None and an error: `empty_metadata`, `malformed_metadata`.
    """
    if not data:
        return None, (empty(file),)
    try:
        return parse_json_object(data.decode()), ()
    except (FormatError, UnicodeDecodeError) as error:
        what = "is zero-filled" if not any(data) else f"is malformed: {error}"
        return None, (malformed(file, what),)


def empty(file: str) -> Finding:
    """Say that a metadata file has 0 bytes."""
    return _error(
        code=FindingCode.EMPTY_METADATA,
        check=CheckName.EXISTENCE,
        message=f"{file} is empty: 0 bytes",
        file=file,
        observed="0 bytes",
    )


def malformed(file: str, what: str, *, fqn: str | None = None, is_certain: bool = True) -> Finding:
    """Say that metadata is not what its writer stores.

    Args:
        file: The file.
        what: The rest of the sentence that begins with the file's name.
        fqn: Tensor or object concerned.
        is_certain: Nothing could be loaded by it; else it is in doubt only.
    """
    return Finding(
        code=FindingCode.MALFORMED_METADATA,
        check=CheckName.COVERAGE,
        severity=Severity.ERROR if is_certain else Severity.UNKNOWN,
        basis=Basis.DAMAGE if is_certain else None,
        message=f"{file} {what}",
        file=file,
        fqn=fqn,
    )


def escaping(file: str, path: object, *, fqn: str) -> Finding:
    """Say that something is said to lie outside the checkpoint; nothing there was opened."""
    return _error(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        message=f"{file}: {fqn} is said to lie in {shown(path)}, outside the checkpoint; not opened",
        file=file,
        fqn=fqn,
        expected="a path below the checkpoint",
        observed=shown(path),
    )


def not_read(file: str, why: str, *, observed: str | None = None) -> Finding:
    """Say that a checkpoint is of a kind that this version does not read: UNKNOWN for good."""
    return Finding(
        code=FindingCode.UNKNOWN_LAYOUT,
        check=CheckName.COVERAGE,
        severity=Severity.UNKNOWN,
        message=f"{file} {why}",
        file=file,
        observed=observed,
    )

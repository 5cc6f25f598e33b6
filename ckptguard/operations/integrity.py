"""Megatron's `integrity.json` as a manifest: what it lists, read back after the save."""

from datetime import UTC, datetime
from typing import Final

import ckptguard
from ckptguard.checks.against_manifest import in_checkpoint
from ckptguard.errors import LimitExceededError, ManifestFormatError, UnsupportedFormatError
from ckptguard.formats.integrity_json import INTEGRITY_NAME, parse_integrity
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.manifest import (
    UNKNOWN_FORMAT,
    ChecksumSource,
    Manifest,
    ManifestFile,
    Origin,
    Role,
    Writer,
)
from ckptguard.operations.manifests_beside import ManifestBeside
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store, read_whole

_MAX_BYTES: Final = 64 << 20
_CONFIG_NAME: Final = "metadata.json"
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def load_integrity(store: Store, listing: Listing, folder: str, *, step: int) -> ManifestBeside:
    """Read the `integrity.json` of one folder as a read-back manifest.

    It gives no lengths: those that are listed now stand in for them, so that only
    names and SHA-256 are held against it.

    Args:
        store: Where it lies.
        listing: Of the checkpoint's root.
        folder: Folder in it that holds the file.
        step: Step of the checkpoint, for the manifest.

    Raises:
        StoreError: It was not read.
    """
    here = listing.below(folder)
    path = f"{folder}/{INTEGRITY_NAME}" if folder else INTEGRITY_NAME
    try:
        data = read_whole(store, here.in_store(INTEGRITY_NAME), max_bytes=_MAX_BYTES)
        checksums = parse_integrity(data)
    except ManifestFormatError as error:
        return ManifestBeside(folder=folder, findings=(_unreadable(path, error, Severity.ERROR),))
    except (UnsupportedFormatError, LimitExceededError) as error:
        return ManifestBeside(folder=folder, findings=(_unreadable(path, error, Severity.UNKNOWN),))
    files = tuple(
        ManifestFile(
            path=name,
            role=Role.SIDECAR if name not in here.files else _role(name),
            length_bytes=here.files[name].length_bytes if name in here.files else 0,
            checksum=checksum,
            checksum_source=ChecksumSource.STORAGE,
        )
        for name, checksum in checksums
    )
    if not files:
        return ManifestBeside(folder=folder)
    manifest = Manifest(
        run="megatron",
        step=step,
        save_id="c-unknown",
        created_at=here.files[INTEGRITY_NAME].modified_at or _NO_TIME,
        origin=Origin.READ_BACK,
        format=UNKNOWN_FORMAT,
        writer=Writer(ckptguard=ckptguard.__version__),
        files=files,
    )
    return ManifestBeside(folder=folder, manifest=manifest, files=(path,), bytes_read=len(data))


def integrity_folders(listing: Listing) -> tuple[str, ...]:
    """Return the folders of a checkpoint that hold Megatron's `integrity.json`.

    The name is a common one; Megatron's stands beside the `metadata.json` that it always
    writes (`save_config`, megatron-core dist_checkpointing/core.py).
    """
    folders = (path.rpartition("/")[0] for path in listing.files if path.rpartition("/")[2] == INTEGRITY_NAME)
    return tuple(sorted(folder for folder in folders if in_checkpoint(folder, _CONFIG_NAME) in listing.files))


def _role(name: str) -> Role:
    if name == ".metadata":
        return Role.METADATA
    return Role.SHARD if name.endswith(".distcp") else Role.SIDECAR


def _unreadable(path: str, error: Exception, severity: Severity) -> Finding:
    return Finding(
        code=FindingCode.MANIFEST_UNREADABLE,
        check=CheckName.EXISTENCE,
        severity=severity,
        basis=Basis.DAMAGE if severity is Severity.ERROR else None,
        file=path,
        message=f"{path}: {error}",
    )

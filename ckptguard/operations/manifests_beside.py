"""Manifests that lie beside the shards: found, read, and what is wrong with them.

Severity of one that cannot be used: its writer leaves it whole (written beside, synced,
renamed; or one PUT), so broken JSON or a broken law means altered bytes: an error. A
later version, or one beyond our limits, may be perfectly good: a doubt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ckptguard.errors import LimitExceededError, ManifestFormatError, UnsupportedFormatError
from ckptguard.formats.manifest_json import ManifestLimits, parse_manifest
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.manifest import (
    MANIFEST_NAME,
    ChecksumSource,
    Manifest,
    ManifestFile,
    Origin,
    default_save_id,
    identity,
    is_manifest_path,
)
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store, read_whole

_TOLD_PROBLEMS: Final = 5
_doubt = partial(Finding, check=CheckName.EXISTENCE, severity=Severity.UNKNOWN)
_mismatch = partial(
    Finding, code=FindingCode.MANIFEST_MISMATCH, check=CheckName.PROVENANCE, severity=Severity.UNKNOWN
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestBeside:
    """What lies beside the shards of one folder.

    Args:
        folder: Relative to the checkpoint's root.
        manifest: To hold the folder against; where each rank left its own, their union.
            None if there is none, or none could be used: `findings` then says why.
        findings: Checks `existence` (unreadable) and `provenance` (disagreeing).
        files: Where manifests lie, relative to the checkpoint's root.
        bytes_read: Of manifests.
    """

    folder: str = ""
    manifest: Manifest | None = None
    findings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
    bytes_read: int = 0


def manifest_folders(listing: Listing) -> tuple[str, ...]:
    """Return the folders of a checkpoint in which a manifest lies, sorted; "" is the root."""
    return tuple(sorted({path.rpartition("/")[0] for path in listing.files if is_manifest_path(path)}))


def load_manifest_beside(
    store: Store, listing: Listing, *, folder: str = "", limits: ManifestLimits | None = None
) -> ManifestBeside:
    """Read the manifest of one folder of a checkpoint.

    Args:
        store: Where it lies.
        listing: Of the checkpoint's root.
        folder: Which folder of it.
        limits: Bounds on each manifest.

    Raises:
        StoreError: A manifest that is listed was not read: whether it is good is not known.
    """
    here = listing.below(folder)
    head = f"{folder}/" if folder else ""
    names = [name for name in here.names if is_manifest_path(name)]
    read = [_read_one(store, here.in_store(name), head + name, limits or ManifestLimits()) for name in names]
    found = ManifestBeside(
        folder=folder,
        findings=tuple(finding for _, finding in read if finding is not None),
        files=tuple(head + name for name in names),
        bytes_read=sum(here.files[name].length_bytes for name in names),
    )
    manifests = {name: manifest for name, (manifest, _) in zip(names, read, strict=True) if manifest}
    return _with_manifest(found, manifests)


def _with_manifest(found: ManifestBeside, manifests: dict[str, Manifest]) -> ManifestBeside:
    whole = manifests.pop(MANIFEST_NAME, None)
    if not manifests:
        return replace(found, manifest=whole)
    united, doubts = unite_ranks(list(manifests.values()))
    if whole is not None and united is not None:
        doubts += _contradictions(whole, united, file=found.files[0])
    return replace(found, manifest=whole or united, findings=(*found.findings, *doubts))


def _read_one(
    store: Store, key: str, path: str, limits: ManifestLimits
) -> tuple[Manifest | None, Finding | None]:
    try:
        data = read_whole(store, key, max_bytes=limits.max_bytes)
        return parse_manifest(data, limits=limits), None
    except UnsupportedFormatError as error:
        return None, _doubt(code=FindingCode.MANIFEST_UNREADABLE, file=path, message=f"{path}: {error}")
    except LimitExceededError as error:
        return None, _doubt(code=FindingCode.LIMIT_EXCEEDED, file=path, message=f"{path}: {error}")
    except ManifestFormatError as error:
        return None, _unreadable(store, key, path, data, error)


def _unreadable(store: Store, key: str, path: str, data: bytes, error: ManifestFormatError) -> Finding:
    """Look again, past the cache: only the same bytes twice condemn."""
    if _read_again(store, key, len(data)) != data:
        return _doubt(
            code=FindingCode.UNSTABLE_READ,
            is_retryable=True,
            file=path,
            message=f"{path} gave different bytes when it was read twice",
        )
    more = len(error.problems) - _TOLD_PROBLEMS
    told = "; ".join(problem.lstrip(": ") for problem in error.problems[:_TOLD_PROBLEMS])
    return Finding(
        code=FindingCode.MANIFEST_UNREADABLE,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        file=path,
        expected="a manifest of version 1",
        observed=f"{len(error.problems)} problems",
        message=f"{path} is no manifest: {told}" + (f"; and {more} more" if more > 0 else ""),
    )


def _read_again(store: Store, key: str, length_bytes: int) -> bytes:
    with store.open(key) as reader:
        reader.forget(0, length_bytes)
        buffer = bytearray(length_bytes + 1)
        return bytes(buffer[: reader.readinto(memoryview(buffer), 0)])


def unite_ranks(manifests: Sequence[Manifest]) -> tuple[Manifest | None, tuple[Finding, ...]]:
    """Put together what each rank says of its own files, where each commits on its own.

    Returns:
        A manifest of all their files; None where they contradict each other. And what is
        doubtful: ranks of which no manifest is there, or that speak of other saves.
    """
    first = manifests[0]
    if (
        len({(manifest.run, manifest.step, manifest.format, manifest.world_size) for manifest in manifests})
        > 1
    ):
        return None, (_mismatch(message="the manifests of the ranks are of different saves"),)
    files: dict[str, ManifestFile] = {}
    for file in (file for manifest in manifests for file in manifest.files):
        if files.setdefault(file.path, file) != file:
            message = f"the manifests of two ranks disagree about {file.path}"
            return None, (_mismatch(file=file.path, message=message),)
    read_back = [manifest for manifest in manifests if manifest.origin is Origin.READ_BACK]
    if read_back:  # no more than the weakest of them can say
        files = {path: replace(file, checksum_source=ChecksumSource.STORAGE) for path, file in files.items()}
    united = replace(
        first,
        created_at=max(manifest.created_at for manifest in manifests),
        origin=Origin.READ_BACK if read_back else Origin.SAVE,
        files=tuple(files.values()),
        items=tuple(item for manifest in manifests for item in manifest.items),
    )
    doubts = _missing_ranks(first.world_size, len(manifests))
    return replace(united, save_id=default_save_id(identity(united))), doubts


def _missing_ranks(world_size: int | None, present: int) -> tuple[Finding, ...]:
    if world_size is None or present >= world_size:
        return ()
    return (_mismatch(message=f"manifests of {present} of {world_size} ranks are there"),)


def _contradictions(whole: Manifest, united: Manifest, *, file: str) -> tuple[Finding, ...]:
    listed = {entry.path: entry for entry in whole.files}
    for entry in united.files:
        other = listed.get(entry.path, entry)
        if (other.length_bytes, other.checksum) != (entry.length_bytes, entry.checksum):
            message = f"a rank's manifest and the whole save's disagree about {entry.path}"
            return (_mismatch(file=file, message=message),)
    return ()

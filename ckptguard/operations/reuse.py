"""What an earlier attempt at the same validation has read need not be read again.

Only what would come out the same: the same bytes (length and version, as listed now), held
against the same metadata, by the same checks, and where they were loaded, by the same torch onto
the same kind of device. A file in which anything was found is always read again. Pure.
"""

import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import ckptguard
from ckptguard.canary.outcome import CanaryOutcome
from ckptguard.checks.version import CHECKS_VERSION
from ckptguard.model.checksum import Algorithm
from ckptguard.model.layout import BARE_ENCODINGS, Encoding, Shard
from ckptguard.model.policy import NumericsMode
from ckptguard.operations.look import Look
from ckptguard.scan.result import FileResult
from ckptguard.storage.protocol import ObjectStat

LOADABLE: Final = BARE_ENCODINGS | {Encoding.TORCH_ZIP_ITEMS}
"""Encodings whose shards go through the canary at depth `load`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a result must be of to be taken over.

    Args:
        versions: As `versions_of_results`.
        algorithms: Checksums that the manifests ask for.
        device: torch device, as asked for; None where nothing is loaded.
    """

    versions: Mapping[str, str]
    algorithms: frozenset[Algorithm]
    device: str | None


def versions_of_results(seen: Look, numerics: NumericsMode) -> dict[str, str]:
    """Return all that the result of a file rests on, besides its bytes and torch.

    Args:
        seen: Its metadata says what each shard is held against.
        numerics: Whether values are measured.
    """
    return {
        "ckptguard": ckptguard.__version__,
        "checks": CHECKS_VERSION,
        "metadata": _digest_of_metadata(seen),
        "numerics": numerics.value,
    }


def _digest_of_metadata(seen: Look) -> str:
    digest = hashlib.sha256()
    for layout in seen.checkpoint.layouts:
        for file in layout.metadata_files:
            digest.update(f"{layout.format}\0{layout.part}\0{file.path}\0{file.checksum}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def reusable(
    known: Mapping[str, FileResult], files: Sequence[Shard], seen: Look, *, asked: Asked
) -> dict[str, FileResult]:
    """Return the results, of those known, that reading the files again would give again.

    Args:
        known: Of an earlier attempt, by path.
        files: To be read now.
        seen: Listed now.
        asked: What they are read for.
    """
    kept: dict[str, FileResult] = {}
    for file in files:
        result, listed = known.get(file.path), seen.listing.files.get(file.path)
        if result is None or listed is None or not _is_same_file(result, listed, file):
            continue
        if not _is_same_question(result, file, asked):
            continue
        scan = replace(result.scan, bytes_read=0)  # now; what an earlier attempt read is its own
        if asked.device is None:
            scan = replace(scan, items_loaded=0, numerics={})
        kept[file.path] = replace(result, scan=scan)
    return kept


def _is_same_file(result: FileResult, listed: ObjectStat, file: Shard) -> bool:
    scan = result.scan
    return (
        scan.version is not None
        and (scan.version, scan.length_bytes) == (listed.version, listed.length_bytes)
        and bool(scan.checksums)
        and not scan.findings
        and scan.items == len(file.items)
    )


def _is_same_question(result: FileResult, file: Shard, asked: Asked) -> bool:
    is_alike = all(result.versions.get(name) == text for name, text in asked.versions.items())
    algorithms = {checksum.algorithm for checksum in result.scan.checksums}
    if not is_alike or not algorithms.issuperset(asked.algorithms):
        return False
    if asked.device is None or file.encoding not in LOADABLE:
        return True
    return (
        result.scan.items_loaded == len(file.items)
        and result.versions.get("torch") == _installed_torch()
        and _is_of(result.device, asked.device)
    )


def _is_of(device: str | None, asked: str) -> bool:
    """Say whether a device's name, `cuda:0 NVIDIA H200`, may be that of the device asked for."""
    return device is not None and device.partition(" ")[0].partition(":")[0] == asked.partition(":")[0]


def _installed_torch() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def is_loaded_alike(reused: Mapping[str, FileResult], outcome: CanaryOutcome) -> bool:
    """Say whether what is taken over was loaded by the torch, and onto the kind of device, of now.

    The canary alone knows both; where it did not come so far, nothing speaks against.
    """
    if outcome.device is None:
        return True
    now = (_kind(outcome.device), outcome.versions.get("torch"))
    loaded = (result for result in reused.values() if result.device is not None)
    return all((_kind(result.device or ""), result.versions.get("torch")) == now for result in loaded)


def _kind(device: str) -> str:
    """Return a device's name without its number: one GPU of a model is as good as the other."""
    kind, _, model = device.partition(" ")
    return f"{kind.partition(':')[0]} {model}".strip()

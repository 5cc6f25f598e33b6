"""A checkpoint of 100,000 files as a worker leaves it: manifest, evidence, findings, results of files."""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import orjson
import zstandard

from ckptguard.formats.manifest_json import header_members
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import FindingCode, Severity
from ckptguard.model.manifest import ChecksumSource, Manifest, ManifestFile, Origin, Role, Writer
from ckptguard.model.report import TensorNumerics
from ckptguard.model.tensor_list import TensorEntry, pack_tensors
from ckptguard.scan.result import FileScan, scan_to_json
from ckptguard_api.domain.tensor_lists import kept_tensors
from ckptguard_api.repositories.file_results import path_digest
from ckptguard_api.tables import evidence, file_results, manifests, parts, tensor_lists
from tests.pages import hostile_names
from tests.pages.seeded_checkpoint import Left
from tests.pages.seeded_rows import Past

NUM_FILES: Final = 100_000
NUM_SHARDS: Final = NUM_FILES - 1
FIRST_HOSTILE: Final = NUM_SHARDS - len(hostile_names.FILES)
NUM_TENSORS: Final = 20_000
SLICES: Final = 64
"""Of each tensor, one a shard: FSDP over 64 ranks."""
LENGTH_BYTES: Final = 64 << 20
MISSING: Final = range(500, 520)
DAMAGED: Final = range(40_000, 40_300)
REWRITTEN: Final = range(70_000, 70_100)
_RESULTS: Final = 5_000
_CREATED_AT: Final = datetime(2026, 11, 1, tzinfo=UTC)
_CREATED_TEXT: Final = _CREATED_AT.isoformat()
_CHECKSUM: Final = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="9e" * 16)
_NAMES: Final = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "ffn.w1", "ffn.w2", "ffn.w3")
_VERSIONS: Final = {"checks": "1", "torch": "2.13.0"}


def shard_path(number: int) -> str:
    """Return the path of a shard: eight files of each rank; the last ones have hostile names."""
    if number >= FIRST_HOSTILE:
        return hostile_names.FILES[number - FIRST_HOSTILE]
    return f"__{number // 8}_{number % 8}.distcp"


def tensor_name(number: int) -> str:
    """Return the tensor of which a shard holds a slice."""
    if number >= FIRST_HOSTILE:
        return hostile_names.FQNS[number - FIRST_HOSTILE]
    tensor = number // SLICES
    return f"model.layers.{tensor // len(_NAMES)}.{_NAMES[tensor % len(_NAMES)]}.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeManifest:
    """A manifest as the service stores it; written as JSON at once, 100,000 checked values take seconds."""

    header: dict[str, Any]
    text: bytes
    bytes_total: int = NUM_FILES * LENGTH_BYTES

    @property
    def identity(self) -> str:
        """A digest that stands for the identity; nothing recomputes it."""
        return f"sha256:{hashlib.sha256(self.text).hexdigest()}"


@cache
def large_manifest() -> LargeManifest:
    """Return the manifest; made once a process."""
    files = [_manifest_file(shard_path(number), number) for number in range(NUM_SHARDS)]
    files.append(_manifest_file(".metadata", NUM_SHARDS, role=Role.METADATA))
    text = orjson.dumps({"files": files, "items": [_item(number) for number in range(NUM_SHARDS)]})
    small = Manifest(
        run="large",
        step=2000,
        save_id="large-2000",
        created_at=_CREATED_AT,
        origin=Origin.SAVE,
        format="dcp",
        writer=Writer(ckptguard="0.1.0", torch="2.13.0", python="3.13.1"),
        files=(ManifestFile(path=".metadata", role=Role.METADATA, length_bytes=1, checksum=_CHECKSUM,
                            checksum_source=ChecksumSource.MEMORY),),
        world_size=12_500,
    )  # fmt: skip
    return LargeManifest(header=header_members(small), text=text)


def add_manifest(past: Past) -> int:
    """Add the manifest's body, and return its id."""
    made = large_manifest()
    return past.add(
        manifests,
        digest=made.identity,
        identity=made.identity,
        body=zstandard.ZstdCompressor().compress(made.text),
        num_files=NUM_FILES,
        bytes_total=made.bytes_total,
        created_at=past.now,
    )


def give_manifest(past: Past, left: Left, manifest_id: int) -> None:
    """Hold the only part of a checkpoint against the manifest."""
    made = large_manifest()
    row = next(row for row in past.rows[parts] if row["checkpoint_id"] == left.id)
    row |= {
        "manifest_id": manifest_id,
        "identity": made.identity,
        "header": made.header,
        "is_from_writer": True,
    }


def add_evidence(past: Past, left: Left, *, is_damaged: bool) -> None:
    """Add what was seen of each file, and where it is damaged what was found."""
    gone = set(MISSING) if is_damaged else set()
    files = [_seen(number, is_damaged=is_damaged) for number in range(NUM_SHARDS) if number not in gone]
    files.append(_seen_file(".metadata", NUM_SHARDS))
    text = json.dumps(files, separators=(",", ":")).encode()
    body = zstandard.ZstdCompressor().compress(text)
    past.add_plain(evidence, validation_id=left.validation_id, body=body, num_files=len(files))
    if is_damaged:
        for number, finding in enumerate(_findings(), 1):
            past.finding(left.validation_id, number, **finding)


def add_tensor_list(past: Past, left: Left, *, is_damaged: bool) -> None:
    """Add the tensors that were seen; a damaged one has others than the one before, reshaped ones, NaN."""
    entries = sorted((_tensor(number, is_damaged=is_damaged) for number in range(NUM_TENSORS)), key=_key)
    kept = kept_tensors(pack_tensors(entries))
    past.add_plain(tensor_lists, validation_id=left.validation_id, body=kept.body, num_tensors=kept.count)


def _key(entry: TensorEntry) -> tuple[str, str]:
    return entry.key


def _tensor(number: int, *, is_damaged: bool) -> TensorEntry:
    is_other = is_damaged and number % 1000 == 0
    name = f"model.layers.{number // 7}.{_NAMES[number % 7]}.weight"
    if number < len(hostile_names.FQNS):
        name = hostile_names.FQNS[number]
    return TensorEntry(
        fqn=f"{name}.new" if is_damaged and number % 2000 == 500 else name,
        part="",
        dtype="float8_e4m3fn" if is_other and number % 3000 == 0 else "bfloat16",
        shape=(8192, 4096) if is_other else (8192, 8192),
        num_slices=SLICES,
        length_bytes=SLICES * LENGTH_BYTES,
        num_files=SLICES,
        files=tuple(shard_path(number * 4 % FIRST_HOSTILE + place) for place in range(8)),
        numerics=_numerics(is_finite=not (is_damaged and number % 5000 == 1)),
    )


def _numerics(*, is_finite: bool) -> TensorNumerics:
    low, high = (-0.25, 0.25) if is_finite else (math.nan, math.nan)
    return TensorNumerics(minimum=low, maximum=high, is_finite=is_finite, is_zero=False, is_denormal=False)


def add_file_results(past: Past, left: Left, attempt_id: int) -> None:
    """Add results of the first files of a validation that is running."""
    compressor = zstandard.ZstdCompressor()
    for number in range(_RESULTS):
        path = shard_path(number)
        scan = _scan(path, number)
        result = json.dumps({"scan": scan, "device": "cuda:0 NVIDIA H200", "versions": _VERSIONS}).encode()
        past.add_plain(
            file_results,
            validation_id=left.validation_id,
            path_digest=path_digest(path),
            path=path,
            attempt_id=attempt_id,
            result=compressor.compress(result),
        )


def _checksum(number: int) -> str:
    return f"xxh3-128:{number * 0x9E3779B97F4A7C15 % 2**128:032x}"


def _manifest_file(path: str, number: int, *, role: Role = Role.SHARD) -> dict[str, Any]:
    return {
        "path": path,
        "role": role.value,
        "length_bytes": LENGTH_BYTES,
        "checksum": _checksum(number),
        "checksum_source": ChecksumSource.MEMORY.value,
    }


def _item(number: int) -> dict[str, Any]:
    return {
        "fqn": tensor_name(number),
        "file": shard_path(number),
        "offset": 512,
        "length_bytes": LENGTH_BYTES - 1024,
        "checksum": _checksum(number + NUM_FILES),
        "offsets": [128 * (number % SLICES), 0],
        "sizes": [128, 8192],
        "dtype": "bfloat16",
    }


def _seen(number: int, *, is_damaged: bool) -> dict[str, Any]:
    return _seen_file(shard_path(number), number + NUM_FILES * (is_damaged and number in DAMAGED))


def _seen_file(path: str, number: int) -> dict[str, Any]:
    return {
        "path": path,
        "length_bytes": LENGTH_BYTES,
        "checksum": _checksum(number),
        "version": None,
        "modified_at": _CREATED_TEXT,
    }


def _findings() -> Iterator[dict[str, Any]]:
    for number in DAMAGED:
        yield {"file": shard_path(number), "fqn": tensor_name(number)}
    for number in MISSING:
        yield _file_finding(FindingCode.MISSING_SHARD, number, Severity.ERROR, "existence")
    for number in REWRITTEN:
        yield _file_finding(FindingCode.STALE_SHARD, number, Severity.WARNING, "provenance")
    for number in range(FIRST_HOSTILE, NUM_SHARDS):
        named = {"file": shard_path(number), "fqn": tensor_name(number), "message": hostile_names.TEXT}
        yield named | {"expected": hostile_names.TEXT, "observed": hostile_names.FORMULA}
    pointer = _file_finding(FindingCode.POINTER_STALE, 0, Severity.INFO, "existence")
    yield pointer | {"file": "latest", "is_about_checkpoint": False, "message": "`latest` names step 1000"}


def _file_finding(code: FindingCode, number: int, severity: Severity, check: str) -> dict[str, Any]:
    names = ("fqn", "slice", "record", "offset", "length_bytes", "expected", "observed")
    place = {"file": shard_path(number), "check": check, "message": f"{code.value} {shard_path(number)}"}
    return {"code": code.value, "severity": severity.value, **place, **dict.fromkeys(names)}


def _scan(path: str, number: int) -> dict[str, Any]:
    scan = FileScan(
        path=path,
        length_bytes=LENGTH_BYTES,
        checksums=(_CHECKSUM,),
        items=1,
        items_loaded=1,
        records=4,
        bytes_read=LENGTH_BYTES,
        numerics={tensor_name(number): _numerics(is_finite=True)},
    )
    return scan_to_json(scan)

"""`*.safetensors.index.json`: which shard holds which tensor, held against the shards' own headers.

Source: huggingface_hub serialization/_base.py (`weight_map`, `metadata.total_size`);
torch 2.13 distributed/checkpoint/hf_storage.py, `HuggingFaceStorageWriter.finish`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptguard.errors import FormatError
from ckptguard.formats.metadata_files import read_bounded
from ckptguard.formats.safetensors_faults import bounded
from ckptguard.formats.safetensors_header import Header
from ckptguard.formats.safetensors_json import parse_json_object
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import MetadataFile
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

INDEX_NAME: Final = re.compile(r"[^.].*\.safetensors\.index(\.[\w-]+)?\.json")
"""`model.safetensors.index.json`, diffusers' `….index.fp16.json`; any stem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIndex:
    """What one index file says.

    Args:
        file: The index itself.
        weight_map: Tensor name to shard, a path relative to the index's folder.
        total_size: Bytes of all tensors; None where it is not said.
    """

    file: MetadataFile
    weight_map: Mapping[str, str]
    total_size: int | None

    @property
    def shards(self) -> tuple[str, ...]:
        """Every shard that is named, sorted."""
        return tuple(sorted(set(self.weight_map.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReading:
    """An index, or why there is none.

    Args:
        file: The file that was read.
        index: None where it cannot be understood; `findings` then say why.
        findings: `empty_metadata`, `malformed_metadata`, `path_escape`; all errors.
    """

    file: MetadataFile
    index: ShardIndex | None
    findings: tuple[Finding, ...] = ()


def read_index(store: Store, listing: Listing, path: str, limits: Limits) -> IndexReading:
    """Read one listed index file.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: Larger than `limits.max_metadata_bytes`.
    """
    raw, file = read_bounded(store, listing, path, max_bytes=limits.max_metadata_bytes)
    if not raw:
        finding = _error(FindingCode.EMPTY_METADATA, f"{path} is empty", path)
        return IndexReading(file=file, index=None, findings=(finding,))
    try:
        entries = parse_json_object(raw.decode())
        index = ShardIndex(file=file, weight_map=_weight_map(entries), total_size=_total_size(entries))
    except (FormatError, UnicodeDecodeError) as error:
        finding = _error(FindingCode.MALFORMED_METADATA, f"{path}: {error}", path)
        return IndexReading(file=file, index=None, findings=(finding,))
    escaping = [name for name in index.shards if not _is_contained(name)]
    if escaping:
        finding = _error(
            FindingCode.PATH_ESCAPE,
            f"{path} refers to {escaping[0][:200]!r}, outside of its folder",
            path,
        )
        return IndexReading(file=file, index=None, findings=(finding,))
    return IndexReading(file=file, index=index)


def check_index(index: ShardIndex, headers: Mapping[str, Header]) -> tuple[Finding, ...]:
    """Report where the index and the shards contradict each other.

    A tensor that stands in no file at all is not reported here: it is a `missing_item`
    of the layout (`tensors_nowhere`).

    Args:
        index: The claim.
        headers: By path, of every readable file of the folder, those that the index does
            not name included: a tensor may stand in one of them instead.

    Returns:
        `index_mismatch`: an error where a reader that follows the index fails, a warning
        where readers load the right bytes all the same.
    """
    homes = {tensor.fqn: path for path, header in headers.items() for tensor in header.tensors}
    findings = [*_misplaced(index, headers, homes), *_unlisted(index, homes)]
    if index.total_size is not None and set(index.shards) <= set(headers):
        findings += _check_total(index, headers)
    return bounded(findings, index.file.path)


def tensors_nowhere(index: ShardIndex, headers: Mapping[str, Header]) -> tuple[str, ...]:
    """Return the tensors that the index places in a readable shard and no file of the folder holds."""
    stored = {tensor.fqn for header in headers.values() for tensor in header.tensors}
    return tuple(
        sorted(fqn for fqn, path in index.weight_map.items() if fqn not in stored and path in headers)
    )


def describes_other_files(index: ShardIndex, present: frozenset[str]) -> Finding | None:
    """Report an index of another build: it names no file that is here, and complete others are.

    Args:
        index: The claim.
        present: Safetensors files of the folder.
    """
    if not present or present.intersection(index.shards):
        return None
    return Finding(
        code=FindingCode.INDEX_MISMATCH,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=f"{index.file.path} describes other files: none of its {len(index.shards)} shards is here,"
        f" and {len(present)} others are",
        file=index.file.path,
        expected=index.shards[0] if index.shards else "at least one shard",
        observed=min(present),
    )


def _misplaced(
    index: ShardIndex, headers: Mapping[str, Header], homes: Mapping[str, str]
) -> Iterator[Finding]:
    names = {path: {tensor.fqn for tensor in header.tensors} for path, header in headers.items()}
    for fqn, path in sorted(index.weight_map.items()):
        if fqn in homes and path in names and fqn not in names[path]:
            yield Finding(
                code=FindingCode.INDEX_MISMATCH,
                check=CheckName.COVERAGE,
                severity=Severity.ERROR,
                basis=Basis.DAMAGE,
                message=f"{fqn} is not in {path}, where {index.file.path} places it, but in {homes[fqn]}",
                file=path,
                fqn=fqn,
                expected=path,
                observed=homes[fqn],
            )


def _unlisted(index: ShardIndex, homes: Mapping[str, str]) -> Iterator[Finding]:
    shards = frozenset(index.shards)
    for fqn, path in sorted(homes.items()):
        if fqn not in index.weight_map and path in shards:
            yield _warning(index, f"{fqn} is in {path}, and {index.file.path} does not list it", fqn=fqn)


def _check_total(index: ShardIndex, headers: Mapping[str, Header]) -> Iterator[Finding]:
    stored = sum(
        tensor.length_bytes
        for path, header in headers.items()
        if path in index.shards
        for tensor in header.tensors
    )
    if stored != index.total_size:
        yield _warning(
            index,
            f"{index.file.path} says {index.total_size} bytes of tensors, the shards hold {stored}",
            expected=str(index.total_size),
            observed=str(stored),
        )


def _weight_map(entries: Mapping[str, Any]) -> dict[str, str]:
    weight_map = entries.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        msg = "no weight_map"
        raise FormatError(msg)
    if not all(isinstance(path, str) and path for path in weight_map.values()):
        msg = "weight_map does not map names to files"
        raise FormatError(msg)
    return weight_map


def _total_size(entries: Mapping[str, Any]) -> int | None:
    metadata = entries.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    # JSON has one kind of number: a whole number may come as 60.0.
    return int(total) if isinstance(total, int | float) and 0 <= total < 1 << 63 else None


def _is_contained(name: str) -> bool:
    return not name.startswith("/") and "\\" not in name and not {"", ".", ".."} & set(name.split("/"))


def _error(code: FindingCode, message: str, file: str) -> Finding:
    return Finding(
        code=code,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=message,
        file=file,
    )


def _warning(
    index: ShardIndex,
    message: str,
    *,
    fqn: str | None = None,
    expected: str | None = None,
    observed: str | None = None,
) -> Finding:
    return Finding(
        code=FindingCode.INDEX_MISMATCH,
        check=CheckName.COVERAGE,
        severity=Severity.WARNING,
        message=message,
        file=index.file.path,
        fqn=fqn,
        expected=expected,
        observed=observed,
    )

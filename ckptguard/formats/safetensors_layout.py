"""From the headers of one set of safetensors files to a layout."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptguard.formats.safetensors_faults import bounded
from ckptguard.formats.safetensors_header import Header, HeaderReading, HeaderTensor
from ckptguard.formats.safetensors_index import check_index, tensors_nowhere
from ckptguard.formats.safetensors_sets import FileSet
from ckptguard.formats.safetensors_sharding import read_saved_offsets
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard, Slice, Tensor

FORMAT: Final = "safetensors"
STOCK_READER_GAP: Final = (
    "safetensors: torch's FileSystemReader reads .distcp files; use HuggingFaceStorageReader"
)
_LENGTH_CODES: Final = (FindingCode.SHORT_SHARD, FindingCode.LONG_SHARD)
_MIN_FILE_BYTES: Final = 10  # length field and `{}`


def build_layout(file_set: FileSet, readings: Mapping[str, HeaderReading]) -> Layout:
    """Describe one set of files.

    Args:
        file_set: Which files must be there.
        readings: By path, of every file of the folder that is there.

    Returns:
        A layout with a shard for every file of the set, missing ones included.
    """
    ours = {path: readings[path] for path in file_set.files if path in readings}
    headers = _readable(ours)
    placed, findings = _place(headers)
    findings = [*_header_findings(ours), *findings, *_set_findings(file_set)]
    missing: tuple[tuple[str, Slice | None], ...] = ()
    if file_set.index is not None:
        in_folder = _readable(readings)
        findings += check_index(file_set.index, in_folder)
        missing = tuple((fqn, None) for fqn in tensors_nowhere(file_set.index, in_folder))
    tensors, conflicts = _tensors(placed)
    return Layout(
        format=FORMAT,
        metadata_files=(file_set.index.file,) if file_set.index else (),
        shards=tuple(_shard(path, ours.get(path), placed, file_set) for path in file_set.files),
        tensors=tensors,
        findings=(*findings, *conflicts),
        stock_reader_gap=STOCK_READER_GAP,
        missing_items=missing,
    )


def _readable(readings: Mapping[str, HeaderReading]) -> dict[str, Header]:
    return {path: reading.header for path, reading in readings.items() if reading.header is not None}


def _header_findings(readings: Mapping[str, HeaderReading]) -> Iterator[Finding]:
    """Yield what the headers turned up, without the lengths that `exact_length_bytes` already carries."""
    for reading in readings.values():
        for finding in reading.findings:
            if reading.header is None or finding.code not in _LENGTH_CODES:
                yield finding


def _place(headers: Mapping[str, Header]) -> tuple[dict[str, list[Item]], list[Finding]]:
    """Return the items of each file, each with the part of its tensor that it holds."""
    items: dict[str, list[Item]] = {}
    findings: list[Finding] = []
    for path, header in headers.items():
        offsets, faults = read_saved_offsets(header, path=path)
        findings += faults
        items[path] = [_item(tensor, offsets.get(tensor.fqn)) for tensor in header.tensors]
    return items, findings


def _item(tensor: HeaderTensor, offsets: tuple[int, ...] | None) -> Item:
    return Item(
        fqn=tensor.fqn,
        kind=ItemKind.TENSOR,
        offset=tensor.offset,
        length_bytes=tensor.length_bytes,
        dtype=tensor.dtype,
        slice=Slice(offsets or (0,) * len(tensor.sizes), tensor.sizes),
    )


def _shard(
    path: str, reading: HeaderReading | None, placed: Mapping[str, Sequence[Item]], file_set: FileSet
) -> Shard:
    if reading is None:  # not there: the check of existence names what is lost with it
        weight_map = file_set.index.weight_map if file_set.index else {}
        lost = sorted(fqn for fqn, home in weight_map.items() if home == path)
        items = tuple(Item(fqn, ItemKind.TENSOR, 0, 0) for fqn in lost)
        return Shard(path=path, encoding=Encoding.SAFETENSORS, items=items, min_length_bytes=_MIN_FILE_BYTES)
    if reading.header is None:  # nothing inside is understood; its bytes are still hashed
        return Shard(path=path, encoding=Encoding.OPAQUE, items=(), min_length_bytes=0)
    return Shard(
        path=path,
        encoding=Encoding.SAFETENSORS,
        items=tuple(placed[path]),
        min_length_bytes=reading.header.length_bytes,
        exact_length_bytes=reading.header.length_bytes,
    )


def _tensors(placed: Mapping[str, Sequence[Item]]) -> tuple[tuple[Tensor, ...], tuple[Finding, ...]]:
    """Join the parts of each tensor; its shape reaches as far as its furthest part.

    The format states no global shape: torch's reader derives it the same way
    (`HuggingFaceStorageReader.read_metadata`, torch 2.13).
    """
    parts: dict[str, list[tuple[str, Item]]] = {}
    for path, items in placed.items():
        for item in items:
            parts.setdefault(item.fqn, []).append((path, item))
    tensors = tuple(_tensor(fqn, [item for _, item in parts[fqn]]) for fqn in sorted(parts))
    conflicts = [
        _dtype_conflict(path, item, first.dtype)
        for (_, first), *rest in parts.values()
        for path, item in rest
        if item.dtype != first.dtype
    ]
    return tensors, bounded(conflicts, conflicts[0].file or "") if conflicts else ()


def _tensor(fqn: str, items: Sequence[Item]) -> Tensor:
    slices = tuple(item.slice for item in items if item.slice is not None)
    ends = [tuple(map(sum, zip(part.offsets, part.sizes, strict=True))) for part in slices]
    shape = tuple(max(end[axis] for end in ends if axis < len(end)) for axis in range(len(ends[0])))
    return Tensor(fqn, items[0].dtype or "", shape, slices)


def _dtype_conflict(path: str, item: Item, expected: str | None) -> Finding:
    return Finding(
        code=FindingCode.DTYPE_MISMATCH,
        check=CheckName.COVERAGE,
        severity=Severity.UNKNOWN,
        message=f"{item.fqn} has one dtype in {path} and another one elsewhere",
        file=path,
        fqn=item.fqn,
        expected=expected,
        observed=item.dtype,
    )


def _set_findings(file_set: FileSet) -> Iterator[Finding]:
    if not file_set.num_ranks:
        return
    yield Finding(
        code=FindingCode.RANK_LOCAL_METADATA,
        check=CheckName.COVERAGE,
        severity=Severity.INFO,
        message=f"files of {file_set.num_ranks} ranks by their names; nothing says how many there were,"
        " so that the loss of the last ones would go unseen",
        file=file_set.files[0],
    )
    if file_set.absent_numbers:
        yield Finding(
            code=FindingCode.MISSING_SHARD,
            check=CheckName.EXISTENCE,
            severity=Severity.UNKNOWN,
            message=f"no rank has a file numbered {', '.join(map(str, file_set.absent_numbers[:8]))}:"
            " lost, or numbers that no tensor was given",
            file=file_set.files[0],
            is_retryable=True,
        )

"""Verify one item's bytes, held whole or passing in pieces."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Final, cast

from ckptguard.errors import LimitExceededError, UnsupportedFormatError
from ckptguard.formats.protocol import ItemReport, Problem, StoredTensor
from ckptguard.formats.torch_item_pickle import HARMLESS_GLOBALS, compare_with_metadata, dtype_bits
from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.model.finding import FindingCode
from ckptguard.model.layout import Encoding, Item, ItemKind
from ckptguard.model.policy import Limits
from ckptguard.scan.decode import TransformMalformedError, decode
from ckptguard.scan.piece_source import PieceSource
from ckptguard.scan.sink import NullSink, PayloadSink
from ckptguard.scan.zarr_chunk import verify_chunk

_DECODED_SLACK_BYTES: Final = 1 << 20


def verify_item(
    item: Item,
    pieces: Iterable[memoryview],
    *,
    limits: Limits,
    encoding: Encoding = Encoding.TORCH_ZIP_ITEMS,
    sink: PayloadSink | None = None,
) -> ItemReport:
    """Verify one item from its stored bytes, in order; its payload goes to `sink` as it passes.

    Args:
        item: What the metadata says of it.
        pieces: Its bytes; each piece lives until the next is asked for. All are taken,
            whatever is found, so that the file's checksum covers them.
        limits: Bounds on what is decoded or held.
        encoding: Of its file; zeros may follow the zip of a whole torch.save file, and a chunk of a
            Zarr array is no zip.
        sink: Takes storage payload of tensor items, unproven until the report is sound.
    """
    if encoding is Encoding.ZARR_CHUNKS:
        return verify_chunk(item, pieces)
    pieces = iter(pieces)
    sink = NullSink() if sink is None else sink
    report = _decoded(item, pieces, limits=limits, sink=sink) if item.transforms else None
    if report is None:
        verifier = ZipVerifier(
            item.length_bytes,
            max_pickle_bytes=limits.max_object_bytes,
            is_zero_tail_allowed=encoding is Encoding.TORCH_SAVE,
        )
        report = _feed(verifier, item, pieces, sink)
    for _ in pieces:
        pass
    return _held_against_metadata(item, report)


def raw_tensor(item: Item) -> StoredTensor:
    """Describe a tensor stored bare (safetensors): contiguous, as the header says."""
    sizes = item.slice.sizes if item.slice is not None else ()
    stride = [1] * len(sizes)
    for dim in range(len(sizes) - 2, -1, -1):
        stride[dim] = stride[dim + 1] * max(sizes[dim + 1], 1)
    return StoredTensor(
        dtype=item.dtype or "uint8",
        sizes=sizes,
        stride=tuple(stride),
        storage_offset=0,
        storage_key="",
        storage_bytes=item.length_bytes,
    )


def _feed(verifier: ZipVerifier, item: Item, pieces: Iterable[memoryview], sink: PayloadSink) -> ItemReport:
    is_tensor = item.kind is ItemKind.TENSOR
    for piece in pieces:
        for payload in verifier.feed(piece):
            if is_tensor:
                sink.piece(item, payload.start, payload.view)
    return verifier.finish()


def _decoded(item: Item, pieces: Iterator[memoryview], *, limits: Limits, sink: PayloadSink) -> ItemReport:
    max_bytes = max(limits.max_object_bytes, _tensor_bytes(item) + _DECODED_SLACK_BYTES)
    decoded = decode(cast("IO[bytes]", PieceSource(pieces)), item.transforms, max_bytes=max_bytes)
    verifier = ZipVerifier(None, max_pickle_bytes=limits.max_object_bytes)
    try:
        return _feed(verifier, item, decoded, sink)
    except UnsupportedFormatError as error:
        problem = Problem(FindingCode.READER_NOT_INSTALLED, f"content not read: {error}")
    except LimitExceededError as error:
        problem = Problem(FindingCode.LIMIT_EXCEEDED, str(error), expected=f"at most {max_bytes} bytes")
    except TransformMalformedError as error:
        problem = Problem(
            FindingCode.TRANSFORM_MALFORMED,
            f"{'+'.join(item.transforms)} stream does not decode",
            offset=0,
            length_bytes=item.length_bytes,
            observed=str(error),
        )
    return ItemReport(problems=(problem,))


def _tensor_bytes(item: Item) -> int:
    count = 1
    for size in item.slice.sizes if item.slice is not None else ():
        count *= size
    return count * dtype_bits(item.dtype or "") // 8


def _held_against_metadata(item: Item, report: ItemReport) -> ItemReport:
    if item.kind is not ItemKind.TENSOR or report.problems:
        return report
    foreign = sorted(report.globals - HARMLESS_GLOBALS)
    if report.tensor is None and foreign:
        # A tensor subclass is one object of many storages (torchao, TransformerEngine): not damage.
        problem = Problem(
            FindingCode.OBJECT_NOT_BUILT,
            f"the tensor was not built, because it needs {foreign[0]}",
            expected="a plain tensor",
            observed=foreign[0],
        )
        return replace(report, problems=(problem,))
    if report.tensor is None:
        problem = Problem(
            FindingCode.DTYPE_MISMATCH,
            "holds a pickled object where the metadata declares a tensor",
            expected=item.dtype,
            observed="object",
        )
        return replace(report, problems=(problem,))
    return replace(report, problems=tuple(compare_with_metadata(item, report.tensor)))

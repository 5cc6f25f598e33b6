"""The one pass over one shard: every byte is read once, hashed, verified and handed on."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from ckptguard.errors import StoreUnavailableError
from ckptguard.formats.protocol import CrcState, ItemReport
from ckptguard.formats.torch_item_pickle import HARMLESS_GLOBALS
from ckptguard.formats.torch_zip_template import TemplateCache
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.layout import BARE_ENCODINGS, Encoding, Item, ItemKind, Shard
from ckptguard.model.policy import Limits
from ckptguard.scan.hashing import FileHasher
from ckptguard.scan.items import raw_tensor, verify_item
from ckptguard.scan.progress import ProgressMeter
from ckptguard.scan.sink import PayloadSink
from ckptguard.scan.spans import BLOCK_BYTES, Span, plan_spans
from ckptguard.storage.protocol import RangeReader

READ_AHEAD_BYTES: Final = 16 << 20


@dataclass(slots=True, kw_only=True)
class ShardTally:
    """What the pass over one shard adds up."""

    checksums: tuple[Checksum, ...] = ()
    suspects: list[tuple[Item, ItemReport]] = field(default_factory=list)
    items: int = 0
    items_without_crc: int = 0
    items_unproven: int = 0
    records: int = 0
    object_globals: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bytes_read: int = 0
    overlapping: list[Item] = field(default_factory=list)

    def count(self, item: Item, report: ItemReport) -> None:
        """Add what verifying one item found; of several slices of one name every global counts."""
        self.items += 1
        self.records += report.records
        self.items_without_crc += report.crc is CrcState.ABSENT
        unusual = report.globals - HARMLESS_GLOBALS
        if unusual:
            known = self.object_globals.get(item.fqn, ())
            self.object_globals[item.fqn] = tuple(sorted(unusual.union(known)))
        if report.problems:
            self.suspects.append((item, report))


class PassSetting(Protocol):
    """What the passes over all files of a scan share."""

    @property
    def limits(self) -> Limits:
        """Bounds on objects and decoded items."""
        ...

    @property
    def meter(self) -> ProgressMeter:
        """Told of each read."""
        ...

    @property
    def algorithms(self) -> Collection[Algorithm]:
        """Checksums wanted besides XXH3-128."""
        ...


class ShardPass:
    """Reads one shard forward, once. Used by one thread, for one shard.

    Args:
        reader: The open shard.
        shard: What the metadata says of it.
        length_bytes: Its real length.
        sink: Takes the payload.
        templates: What is known of small items' structure; shared by the shards of a thread.
        setting: What all passes of a scan share.
    """

    def __init__(
        self,
        reader: RangeReader,
        shard: Shard,
        *,
        length_bytes: int,
        sink: PayloadSink,
        templates: TemplateCache,
        setting: PassSetting,
    ) -> None:
        self._reader = reader
        self._shard = shard
        self._length_bytes = length_bytes
        self._sink = sink
        self._templates = templates
        self._limits = setting.limits
        self._meter = setting.meter
        self._buffer = sink.buffer(BLOCK_BYTES)
        self._hasher = FileHasher(setting.algorithms)
        self._hinted_until = 0
        self._tally = ShardTally()

    def run(self) -> ShardTally:
        """Read to the end.

        Raises:
            StoreError: The store did not deliver; what was found so far is lost, so that
                an unread byte never counts.
        """
        spans, self._tally.overlapping = plan_spans(self._shard.items, self._length_bytes)
        for span in spans:
            self._read_span(span)
        self._tally.checksums = self._hasher.checksums()
        return self._tally

    def _read_span(self, span: Span) -> None:
        if len(span.items) == 1 and span.end - span.start > len(self._buffer):
            self._stream_item(span.items[0])
        elif span.items:
            view = self._read(span.start, span.end - span.start)
            for item in span.items:
                start = item.offset - span.start
                self._whole_item(item, view[start : start + item.length_bytes])
        else:
            for _ in self._pieces(span.start, span.end):
                pass

    def _read(self, offset: int, count: int) -> memoryview:
        """Read and hash the next bytes; they live in the buffer until the next call."""
        view = self._buffer[:count]
        self._hint(offset + count)
        got = self._reader.readinto(view, offset)
        if got != count:
            msg = f"ended at byte {offset + got} of {self._length_bytes}"
            raise StoreUnavailableError(msg, key=self._shard.path)
        self._hasher.update(view)
        self._tally.bytes_read += count
        self._meter.add_bytes(count, file=self._shard.path)
        return view

    def _hint(self, offset: int) -> None:
        if offset + READ_AHEAD_BYTES // 2 > self._hinted_until:
            start = max(offset, self._hinted_until)
            self._reader.will_need(start, offset + READ_AHEAD_BYTES - start)
            self._hinted_until = offset + READ_AHEAD_BYTES

    def _pieces(self, start: int, end: int) -> Iterator[memoryview]:
        for offset in range(start, end, len(self._buffer)):
            yield self._read(offset, min(len(self._buffer), end - offset))

    def _whole_item(self, item: Item, view: memoryview) -> None:
        if self._shard.encoding in BARE_ENCODINGS:
            self._tally.items += 1
            self._tally.items_unproven += 1
            self._sink.whole(item, raw_tensor(item), view)
            return
        if self._shard.encoding is Encoding.ZARR_CHUNKS:
            self._zarr_chunk(item, [view])
            return
        proven = self._templates.verify(view, item) if _may_be_plain(item) else None
        if proven is None:
            self._unlearned_item(item, view)
            return
        payload, stored = proven
        self._tally.items += 1
        self._sink.whole(item, stored, payload)

    def _unlearned_item(self, item: Item, view: memoryview) -> None:
        """Verify by the generic path; a sound plain tensor teaches the template for its kind."""
        if not _may_be_plain(item):
            self._zip_item(item, [view], held=view)
            return
        report = verify_item(item, [view], limits=self._limits)
        self._tally.count(item, report)
        if report.tensor is not None and not report.problems:
            payload = self._templates.learn(view, item, report)
            self._sink.whole(item, report.tensor, payload)

    def _stream_item(self, item: Item) -> None:
        pieces = self._pieces(item.offset, item.offset + item.length_bytes)
        if self._shard.encoding in BARE_ENCODINGS:
            self._raw_item(item, pieces)
        elif self._shard.encoding is Encoding.ZARR_CHUNKS:
            self._zarr_chunk(item, pieces)
        else:
            self._zip_item(item, pieces, held=None)

    def _raw_item(self, item: Item, pieces: Iterable[memoryview]) -> None:
        start = 0
        for piece in pieces:
            self._sink.piece(item, start, piece)
            start += len(piece)
        self._tally.items += 1
        self._tally.items_unproven += 1
        self._sink.end(item, raw_tensor(item))

    def _zarr_chunk(self, item: Item, pieces: Iterable[memoryview]) -> None:
        report = verify_item(item, pieces, limits=self._limits, encoding=Encoding.ZARR_CHUNKS)
        self._tally.count(item, report)
        self._tally.items_unproven += 1

    def _zip_item(self, item: Item, pieces: Iterable[memoryview], *, held: memoryview | None) -> None:
        report = verify_item(
            item, pieces, limits=self._limits, encoding=self._shard.encoding, sink=self._sink
        )
        self._tally.count(item, report)
        if item.kind is ItemKind.TENSOR:
            self._sink.end(item, None if report.problems else report.tensor)
        elif not report.problems:
            self._sink.whole_object(item, held)


def _may_be_plain(item: Item) -> bool:
    """Say whether these bytes should be those of a bare tensor item, for which there are templates."""
    return item.kind is ItemKind.TENSOR and not item.transforms

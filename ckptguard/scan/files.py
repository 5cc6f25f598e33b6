"""Read files of a checkpoint, several at a time, each once from its first to its last byte."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from ckptguard.errors import StoreError
from ckptguard.formats.protocol import ItemReport, Problem
from ckptguard.formats.torch_zip_template import TemplateCache
from ckptguard.model.checksum import Algorithm
from ckptguard.model.finding import Finding, FindingCode
from ckptguard.model.layout import Encoding, Item, Shard
from ckptguard.model.policy import Limits
from ckptguard.scan.faults import changed_finding, confirm, pieces_of, store_finding
from ckptguard.scan.items import verify_item
from ckptguard.scan.progress import ProgressMeter
from ckptguard.scan.result import FileScan
from ckptguard.scan.shard import ShardPass, ShardTally
from ckptguard.scan.sink import NullSink, PayloadSink
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store

SinkFactory = Callable[[Shard], PayloadSink]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSetting:
    """What all files of one scan share.

    Args:
        store: Where they lie.
        root: Folder of the checkpoint in the store.
        limits: Bounds on objects and decoded items.
        jobs: Files read at the same time.
        is_direct: Drop each file's cache before reading it.
        algorithms: Checksums wanted besides XXH3-128.
        meter: Told of each read.
    """

    store: Store
    root: str
    limits: Limits = field(default_factory=Limits)
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    is_direct: bool = False
    algorithms: frozenset[Algorithm] = frozenset()
    meter: ProgressMeter = field(default_factory=ProgressMeter)

    def in_store(self, path: str) -> str:
        """Return the store-relative path of a checkpoint-relative one."""
        return f"{self.root}/{path}" if self.root else path


def whole_file(path: str) -> Shard:
    """Describe a file of which nothing but its checksum is of interest."""
    return Shard(path=path, encoding=Encoding.OPAQUE, items=(), min_length_bytes=0)


def scan_files(
    shards: Sequence[Shard], setting: ScanSetting, *, new_sink: SinkFactory = lambda _: NullSink()
) -> Iterator[FileScan]:
    """Yield a result per shard, as each is done. Store trouble is a finding of that file.

    Args:
        shards: Largest first reads best.
        setting: What they share.
        new_sink: Makes the sink of a shard; it is used by one thread.
    """
    if setting.jobs == 1 or len(shards) == 1:
        templates = TemplateCache()
        for shard in shards:
            yield scan_file(shard, setting, sink=new_sink(shard), templates=templates)
        return
    of_thread = threading.local()
    with ThreadPoolExecutor(setting.jobs, thread_name_prefix="ckptguard-scan") as pool:
        futures = [
            pool.submit(_in_thread, of_thread, shard, setting, new_sink)
            for shard in sorted(shards, key=lambda shard: -shard.min_length_bytes)
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _in_thread(
    of_thread: threading.local, shard: Shard, setting: ScanSetting, new_sink: SinkFactory
) -> FileScan:
    if not hasattr(of_thread, "templates"):
        of_thread.templates = TemplateCache()
    return scan_file(shard, setting, sink=new_sink(shard), templates=of_thread.templates)


def scan_file(shard: Shard, setting: ScanSetting, *, sink: PayloadSink, templates: TemplateCache) -> FileScan:
    """Read one file once; look twice at what seems damaged; see that it did not change meanwhile."""
    path = setting.in_store(shard.path)
    try:
        before = setting.store.stat(path)
        with setting.store.open(path) as reader:
            if setting.is_direct:
                reader.forget(0, before.length_bytes)
            tally = ShardPass(
                reader,
                shard,
                length_bytes=before.length_bytes,
                sink=sink,
                templates=templates,
                setting=setting,
            ).run()
            tally.suspects += _overlapping(reader, tally, setting.limits)
        findings, reread_bytes = _confirmed(shard, tally, setting)
        changes = _changes(shard, before, setting.store.stat(path))
        findings = changes or [*findings, *sink.findings()]
    except StoreError as error:
        setting.meter.finish_file(shard.path, findings=1)
        return FileScan(path=shard.path, length_bytes=0, findings=(store_finding(error, file=shard.path),))
    setting.meter.finish_file(shard.path, findings=len(findings))
    return FileScan(
        path=shard.path,
        length_bytes=before.length_bytes,
        checksums=() if changes else tally.checksums,
        findings=tuple(findings),
        items=tally.items,
        items_without_crc=tally.items_without_crc,
        items_unproven=tally.items_unproven,
        items_loaded=sink.num_loaded,
        records=tally.records,
        object_globals=tally.object_globals,
        numerics=sink.numerics(),
        bytes_read=tally.bytes_read + reread_bytes,
        version=before.version,
    )


def _confirmed(shard: Shard, tally: ShardTally, setting: ScanSetting) -> tuple[list[Finding], int]:
    if not tally.suspects:
        return [], 0
    path = setting.in_store(shard.path)
    return confirm(setting.store, path, shard, tally.suspects, limits=setting.limits)


def _overlapping(reader: RangeReader, tally: ShardTally, limits: Limits) -> Iterable[tuple[Item, ItemReport]]:
    """Verify items that overlap others by reading them again, at most once the file's length in all."""
    budget = tally.bytes_read
    for item in tally.overlapping:
        budget -= item.length_bytes
        if budget < 0:
            problem = Problem(
                FindingCode.LIMIT_EXCEEDED, "overlapping items ask for more reads than the file is long"
            )
            yield item, ItemReport(problems=(problem,))
            continue
        report = verify_item(item, pieces_of(reader, item), limits=limits)
        tally.bytes_read += item.length_bytes
        tally.items += 1
        if report.problems:
            yield item, report


def _changes(shard: Shard, before: ObjectStat, after: ObjectStat) -> list[Finding]:
    if (before.length_bytes, before.version) == (after.length_bytes, after.version):
        return []
    observed = f"{after.length_bytes} bytes, version {after.version}"
    return [changed_finding(shard.path, before, observed=observed)]

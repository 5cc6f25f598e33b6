"""Read files of a checkpoint, several at a time, each once from its first to its last byte."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Final

from ckptguard.errors import StoreError, StoreUnavailableError
from ckptguard.formats.protocol import ItemReport, Problem
from ckptguard.formats.torch_zip_template import TemplateCache
from ckptguard.model.checksum import Algorithm
from ckptguard.model.finding import Finding, FindingCode
from ckptguard.model.layout import BARE_ENCODINGS, Encoding, Shard
from ckptguard.model.policy import Limits
from ckptguard.scan.faults import changed_finding, confirm, pieces_of, store_finding
from ckptguard.scan.items import verify_item
from ckptguard.scan.progress import ProgressMeter
from ckptguard.scan.result import FileScan
from ckptguard.scan.shard import ShardPass, ShardTally
from ckptguard.scan.sink import NullSink, PayloadSink
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store

MAX_UNAVAILABLE_FILES: Final = 3
"""Files in a row that a store may fail to deliver before it is not asked for more."""

_TOO_MANY_READS: Final = Problem(
    FindingCode.LIMIT_EXCEEDED, "overlapping items ask for more reads than the file is long"
)

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


class _Patience:
    """Counts files in a row that the store did not deliver; any thread.

    Each of them has cost all attempts of a retry policy. When the store is gone, a
    thousand shards shall not wait for it one after another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures_in_a_row = 0

    @property
    def is_over(self) -> bool:
        return self._failures_in_a_row >= MAX_UNAVAILABLE_FILES

    def learn(self, scan: FileScan) -> None:
        is_failure = any(finding.code is FindingCode.STORE_UNAVAILABLE for finding in scan.findings)
        with self._lock:
            self._failures_in_a_row = self._failures_in_a_row + 1 if is_failure else 0


def scan_files(
    shards: Sequence[Shard], setting: ScanSetting, *, new_sink: SinkFactory = lambda _: NullSink()
) -> Iterator[FileScan]:
    """Yield a result per shard, as each is done. Store trouble is a finding of that file.

    After MAX_UNAVAILABLE_FILES in a row that were not delivered the rest is not asked for,
    and each gets the same finding.

    Args:
        shards: Largest first reads best.
        setting: What they share.
        new_sink: Makes the sink of a shard; it is used by one thread.
    """
    patience = _Patience()
    if setting.jobs == 1 or len(shards) == 1:
        templates = TemplateCache()
        for shard in shards:
            yield _scan_patiently(shard, setting, new_sink, templates, patience)
        return
    of_thread = threading.local()
    with ThreadPoolExecutor(setting.jobs, thread_name_prefix="ckptguard-scan") as pool:
        futures = [
            pool.submit(_in_thread, of_thread, shard, setting, new_sink, patience)
            for shard in sorted(shards, key=lambda shard: -shard.min_length_bytes)
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C too: a large shard is not read to its end for nobody
            setting.meter.stop()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _in_thread(
    of_thread: threading.local,
    shard: Shard,
    setting: ScanSetting,
    new_sink: SinkFactory,
    patience: _Patience,
) -> FileScan:
    if not hasattr(of_thread, "templates"):
        of_thread.templates = TemplateCache()
    return _scan_patiently(shard, setting, new_sink, of_thread.templates, patience)


def _scan_patiently(
    shard: Shard,
    setting: ScanSetting,
    new_sink: SinkFactory,
    templates: TemplateCache,
    patience: _Patience,
) -> FileScan:
    if patience.is_over:
        return _undelivered(shard, StoreUnavailableError("not asked for: the store does not answer"), setting)
    scan = scan_file(shard, setting, sink=new_sink(shard), templates=templates)
    patience.learn(scan)
    return scan


def _undelivered(shard: Shard, error: StoreError, setting: ScanSetting) -> FileScan:
    setting.meter.finish_file(shard.path, findings=1)
    return FileScan(path=shard.path, length_bytes=0, findings=(store_finding(error, file=shard.path),))


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
            _verify_overlapping(reader, shard, tally, setting.limits)
        findings, reread_bytes = _confirmed(shard, tally, setting)
        changes = _changes(shard, before, setting.store.stat(path))
        findings = changes or [*findings, *sink.findings()]
    except StoreError as error:
        return _undelivered(shard, error, setting)
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


def _verify_overlapping(reader: RangeReader, shard: Shard, tally: ShardTally, limits: Limits) -> None:
    """Verify items that overlap others by reading them again, at most once the file's length in all."""
    budget = tally.bytes_read
    for item in tally.overlapping:
        budget -= item.length_bytes
        if budget < 0:
            tally.suspects.append((item, ItemReport(problems=(_TOO_MANY_READS,))))
        elif shard.encoding in BARE_ENCODINGS:
            tally.items += 1
            tally.items_unproven += 1
        else:
            pieces = pieces_of(reader, item)
            tally.count(item, verify_item(item, pieces, limits=limits, encoding=shard.encoding))
            tally.bytes_read += item.length_bytes


def _changes(shard: Shard, before: ObjectStat, after: ObjectStat) -> list[Finding]:
    if (before.length_bytes, before.version) == (after.length_bytes, after.version):
        return []
    observed = f"{after.length_bytes} bytes, version {after.version}"
    return [changed_finding(shard.path, before, observed=observed)]

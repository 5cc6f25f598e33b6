"""A shard that a writer touches while it is read is never VALID; who wrote is another thread."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptguard.model.finding import FindingCode
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.scan.progress import REPORT_EVERY_BYTES, Progress
from ckptguard.testing import raw_pickles as raw
from ckptguard.testing.edits import set_times
from ckptguard.testing.raw_dcp import SHARD
from ckptguard.testing.torch_zip_bytes import build_zip

NUM_ELEMENTS = 2 * REPORT_EVERY_BYTES // 4
"""So many that the first report comes in the middle."""


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return the shard of a healthy checkpoint of one tensor."""
    folder = tmp_path / "step-1"
    folder.mkdir()
    item = build_zip(raw.finished(raw.float_tensor(NUM_ELEMENTS), protocol=2), {"0": bytes(4 * NUM_ELEMENTS)})
    (folder / SHARD).write_bytes(item)
    size = raw.size_of([NUM_ELEMENTS])
    entry = raw.tensor_entry(size, raw.list_of([raw.chunk(raw.size_of([0]), size)]))
    place = raw.stored(raw.text(SHARD), raw.number(0), raw.number(len(item)))
    index = raw.index(raw.text("w"), raw.size_of([0]))
    (folder / ".metadata").write_bytes(raw.finished(raw.metadata([(raw.text("w"), entry)], [(index, place)])))
    set_times(folder)
    return folder / SHARD


def check_while(act: Callable[[], object], folder: Path) -> Report:
    """Check, and let another thread act once, when the first bytes have been read."""
    acted: list[bool] = []

    def on_progress(progress: Progress) -> None:
        if not acted and progress.bytes_done:
            acted.append(True)
            writer = threading.Thread(target=act)
            writer.start()
            writer.join()

    report = validate(str(folder), policy=Policy(depth=Depth.CONTENT, settle_s=0), progress=on_progress)
    assert acted
    return report


def codes_of(report: Report) -> set[FindingCode]:
    return {finding.code for check in report.checks for finding in check.findings}


def grow(shard: Path) -> None:
    with shard.open("ab") as stream:
        stream.write(bytes(4096))


def rewrite_same_bytes(shard: Path) -> None:
    with shard.open("r+b") as stream:
        start = stream.read(4096)
        stream.seek(0)
        stream.write(start)


def replace_with_same_bytes(shard: Path) -> None:
    copy = shard.with_suffix(".new")
    copy.write_bytes(shard.read_bytes())
    copy.replace(shard)


def replace_and_put_times_back(shard: Path) -> None:
    before = shard.stat()
    replace_with_same_bytes(shard)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut(shard: Path) -> None:
    os.truncate(shard, REPORT_EVERY_BYTES + 4096)


def remove(shard: Path) -> None:
    shard.unlink()


@pytest.mark.parametrize(
    "act",
    [grow, rewrite_same_bytes, replace_with_same_bytes, replace_and_put_times_back, remove],
    ids=lambda act: act.__name__,
)
def test_a_shard_that_changes_while_it_is_read_is_unknown(act: Callable[[Path], None], shard: Path) -> None:
    report = check_while(lambda: act(shard), shard.parent)
    assert report.judgement.verdict is Verdict.UNKNOWN
    assert report.judgement.is_retryable
    assert FindingCode.CHANGED_DURING_CHECK in codes_of(report)


def test_a_shard_that_is_cut_while_it_is_read_is_unknown(shard: Path) -> None:
    report = check_while(lambda: cut(shard), shard.parent)
    assert (report.judgement.verdict, report.judgement.is_retryable) == (Verdict.UNKNOWN, True)


def test_metadata_that_changes_while_shards_are_read_is_unknown(shard: Path) -> None:
    metadata = shard.parent / ".metadata"
    report = check_while(lambda: replace_with_same_bytes(metadata), shard.parent)
    assert report.judgement.verdict is Verdict.UNKNOWN
    assert FindingCode.CHANGED_DURING_CHECK in codes_of(report)

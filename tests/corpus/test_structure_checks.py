"""Checks 1-3 over every real DCP checkpoint: nothing to complain about, and one lost slice is found."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ckptguard.checks.byte_count import check_byte_counts
from ckptguard.checks.coverage import check_coverage
from ckptguard.checks.existence import check_existence
from ckptguard.formats.dcp import ADAPTER
from ckptguard.model.finding import Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore


def _opened(corpus_dir: Path) -> Iterator[tuple[Path, Listing, tuple[Layout, ...]]]:
    for folder in sorted({path.parent for path in corpus_dir.rglob("*.metadata")}):
        store = LocalStore(folder)
        listing = list_folder(store, "", max_files=10_000)
        if ADAPTER.recognises(listing):
            yield folder, listing, ADAPTER.open(store, listing, Limits())


def _judge(layouts: tuple[Layout, ...], listing: Listing) -> list[Finding]:
    return [
        *check_existence(layouts, listing),
        *check_byte_counts(layouts, listing),
        *check_coverage(layouts),
    ]


def test_real_checkpoints_are_structurally_clean(corpus_dir: Path) -> None:
    opened = list(_opened(corpus_dir))
    assert len(opened) > 40
    worse_than_info = [
        (folder.name, finding.severity, finding.message)
        for folder, listing, layouts in opened
        for finding in _judge(layouts, listing)
        if finding.severity is not Severity.INFO
    ]
    assert worse_than_info == []


def test_losing_any_slice_that_holds_elements_leaves_a_hole(corpus_dir: Path) -> None:
    num_tried = 0
    for folder, _, layouts in _opened(corpus_dir):
        for layout in layouts:
            if layout.is_rank_local:
                continue
            for tensor in layout.tensors:
                for index, lost in enumerate(tensor.slices):
                    if 0 in lost.sizes or lost in (*tensor.slices[:index], *tensor.slices[index + 1 :]):
                        continue
                    kept = tensor.slices[:index] + tensor.slices[index + 1 :]
                    damaged = replace(layout, tensors=(tensor._replace(slices=kept),), shards=())
                    codes = {finding.code for finding in check_coverage([damaged])}
                    assert codes == {FindingCode.COVERAGE_HOLE}, (folder.name, tensor.fqn, lost)
                    num_tried += 1
    assert num_tried > 1000

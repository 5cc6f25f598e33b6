"""What our load delivers is bit-equal to what stock torch loads and to what the writer had."""

import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.planner import ReadItem

from ckptguard.formats.checkpoint import distinct_shards
from ckptguard.formats.reopen import open_checkpoint
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits, NumericsMode
from ckptguard.scan.files import ScanSetting
from ckptguard.scan.result import FileScan
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore

pytestmark = pytest.mark.torch


def dcp_folders(corpus_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield each DCP folder of the corpus and the name of its checkpoint."""
    for metadata in sorted(corpus_dir.rglob(".metadata")):
        yield metadata.relative_to(corpus_dir).parts[0], metadata.parent


def expected_digests(corpus_dir: Path, name: str, folder: Path) -> dict[str, str]:
    described = json.loads((corpus_dir / f"{name}.json").read_text())
    entries = described.get("expected_by_step", {}).get(folder.name, described["expected"])
    return {entry["fqn"]: entry["sha256"] for entry in entries if entry.get("sha256")}


def load_with_ours(folder: Path) -> tuple[dict[str, torch.Tensor], list[FileScan], tuple[Layout, ...]]:
    """Rebuild every tensor from what the planner was handed, piece by piece."""
    from ckptguard.canary import dcp_load  # noqa: PLC0415 - imports torch

    store = LocalStore(folder)
    layouts = open_checkpoint(store, list_folder(store, "", max_files=10_000), Limits())
    whole = {
        tensor.fqn: torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype))
        for layout in layouts
        for tensor in layout.tensors
    }

    class Keeping(dcp_load.WindowPlanner):
        def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
            super().commit_tensor(read_item, tensor)
            target = whole[read_item.storage_index.fqn]
            corner = read_item.storage_index.offset or (0,) * target.dim()
            for axis, (start, size) in enumerate(zip(corner, read_item.lengths, strict=True)):
                target = target.narrow(axis, start, size)
            target.copy_(tensor.reshape(tuple(read_item.lengths)))

    shards = distinct_shards(layouts)
    scans: list[FileScan] = []
    planner = Keeping(shards, device=torch.device("cpu"), numerics=NumericsMode.REPORT)
    reader = dcp_load.VerifyingReader(ScanSetting(store=store, root="", jobs=1), on_scan=scans.append)
    dcp_load.run_load(reader, planner)
    return whole, scans, layouts


def load_with_stock(folder: Path, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415
    from torch.distributed.checkpoint.state_dict_loader import load  # noqa: PLC0415

    state = {fqn: torch.empty_like(tensor) for fqn, tensor in like.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(state, storage_reader=FileSystemReader(folder), no_dist=True)
    return state


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_every_tensor_is_bit_equal_to_stock_and_to_the_writers(corpus_dir: Path) -> None:
    compared_with_stock = compared_with_writer = 0
    for name, folder in dcp_folders(corpus_dir):
        ours, scans, layouts = load_with_ours(folder)
        assert not [finding for scan in scans for finding in scan.findings], name
        assert sum(scan.items_loaded for scan in scans) == sum(scan.items for scan in scans), name
        digests = expected_digests(corpus_dir, name, folder)
        for fqn, digest in digests.items():
            if fqn in ours:
                assert hashlib.sha256(bits(ours[fqn])).hexdigest() == digest, (name, fqn)
                compared_with_writer += 1
        if any(layout.stock_reader_gap or layout.is_rank_local for layout in layouts):
            continue
        if any("pathlib._local" in layout.stock_globals for layout in layouts):
            continue
        stock = load_with_stock(folder, ours)
        for fqn, tensor in stock.items():
            assert bits(tensor) == bits(ours[fqn]), (name, fqn)
            compared_with_stock += 1
    assert compared_with_stock > 5000
    assert compared_with_writer > 5000

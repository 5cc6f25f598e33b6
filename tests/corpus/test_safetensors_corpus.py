"""Real safetensors checkpoints: whole, without a fault, and their extents hold the saved bytes."""

import hashlib
import json
from pathlib import Path

import pytest

from ckptguard.checks.coverage import check_coverage
from ckptguard.formats.safetensors import ADAPTER
from ckptguard.formats.safetensors_layout import FORMAT
from ckptguard.model.finding import Severity
from ckptguard.model.layout import Item, Layout, Tensor
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore

NAMES = (
    "accelerate_save_model",
    "accelerate_save_state_ddp_ws2",
    "dcp_torch2_13_0_hf_consolidated_ws2",
    "dcp_torch2_13_0_hf_consolidated_ws2/sharded",
    "dcp_torch2_13_0_hf_distributed_ws2",
    "dcp_torch2_13_0_hf_rank0_3files",
    "dcp_torch2_14_1_hf_distributed_ws2",
    "hf_hub_sharded_safetensors",
    "hf_save_pretrained",
    "hf_save_pretrained_single",
)


def bytes_of(folder: Path, layout: Layout, tensor: Tensor) -> bytes:
    """Join the rows of a tensor; in the corpus, only the first dimension is ever cut."""
    extents: list[tuple[tuple[int, ...], Path, Item]] = [
        (item.slice.offsets, folder / shard.path, item)
        for shard in layout.shards
        for item in shard.items
        if item.fqn == tensor.fqn and item.slice is not None
    ]
    assert all(not any(offsets[1:]) for offsets, _, _ in extents)
    return b"".join(
        path.read_bytes()[item.offset : item.offset + item.length_bytes]
        for _, path, item in sorted(extents, key=lambda extent: extent[0])
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_real_checkpoint_is_whole_and_its_extents_hold_the_saved_bytes(corpus_dir: Path, name: str) -> None:
    folder = corpus_dir / name
    store = LocalStore(folder)
    (layout,) = ADAPTER.open(store, list_folder(store, "", max_files=1000), Limits())
    assert layout.format == FORMAT
    assert [finding for finding in layout.findings if finding.severity is not Severity.INFO] == []
    assert check_coverage([layout]) == ()
    assert layout.missing_items == ()
    told = json.loads((corpus_dir / f"{name.split('/', maxsplit=1)[0]}.json").read_text())["expected"]
    digests = {entry["fqn"].removeprefix("model."): entry for entry in told if entry.get("sha256")}
    compared = 0
    for tensor in layout.tensors:
        entry = digests.get(tensor.fqn) or digests.get(tensor.fqn.removeprefix("model."))
        if entry is None:
            continue
        assert f"torch.{tensor.dtype}" == entry["dtype"]
        assert list(tensor.shape) == entry["shape"]
        assert hashlib.sha256(bytes_of(folder, layout, tensor)).hexdigest() == entry["sha256"], tensor.fqn
        compared += 1
    assert compared == len(layout.tensors)

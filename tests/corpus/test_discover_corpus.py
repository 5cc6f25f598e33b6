"""Every real checkpoint is found as what it is, without a word against a healthy one."""

from pathlib import Path

import pytest

from ckptguard.formats.checkpoint import Checkpoint
from ckptguard.formats.discover import discover
from ckptguard.model.finding import Finding, Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore

PARTS = {
    "accelerate_fsdp2_sharded_ws2": ("", [("dcp", "optimizer_0"), ("dcp", "pytorch_model_fsdp_0")]),
    "accelerate_save_state_ddp_ws2": ("", [("safetensors", ""), ("torch_save", "")]),
    "dcp_torch2_13_0_hf_consolidated_ws2": ("", [("safetensors", ""), ("safetensors", "sharded")]),
    "deepspeed_zero3_ws2": ("global_step1", [("torch_save", "")]),
    "lightning_modelparallel_ws2": ("", [("dcp", "")]),
    "megatron_tp_plain_ws2": ("iter_0000007", [("dcp", "")]),
    "olmo_core_ws2": ("", [("dcp", "")]),
    "orbax_pytree_zarr": ("", [("orbax", "")]),
    "torch_checkpointing_default_ws2": ("", [("torch_checkpointing", "")]),
    "torchsnapshot_ddp_ws2": ("", [("torchsnapshot", "")]),
    "torchtitan_sync_ws2": ("checkpoint/step-5", [("dcp", "")]),
    "verl_fsdp2_ws2": ("global_step_1", [("torch_save", "actor")]),
}
_AGAINST = (Severity.ERROR, Severity.UNKNOWN)


def look(corpus: Path, name: str) -> Checkpoint:
    store = LocalStore(corpus)
    return discover(store, list_folder(store, name, max_files=10_000), Limits())


def findings_of(checkpoint: Checkpoint) -> list[Finding]:
    return [finding for layout in checkpoint.layouts for finding in layout.findings]


def test_every_healthy_checkpoint_is_found_without_a_word_against_it(corpus_dir: Path) -> None:
    names = sorted(path.name for path in corpus_dir.iterdir() if path.is_dir())
    assert len(names) >= 60
    for name in names:
        checkpoint = look(corpus_dir, name)
        assert checkpoint.layouts, name
        assert not [one for one in findings_of(checkpoint) if one.severity in _AGAINST], name
        assert checkpoint.surroundings == (), name


@pytest.mark.parametrize(("name", "expected"), PARTS.items())
def test_every_trainers_parts_are_found(
    corpus_dir: Path, name: str, expected: tuple[str, list[tuple[str, str]]]
) -> None:
    checkpoint = look(corpus_dir, name)
    folder, parts = expected
    assert checkpoint.root == (f"{name}/{folder}" if folder else name)
    assert [(layout.format, layout.part) for layout in checkpoint.layouts] == parts


def test_torchtitans_steps_are_listed_in_order(corpus_dir: Path) -> None:
    steps = look(corpus_dir, "torchtitan_sync_ws2").steps
    assert [(step.step, step.is_committed) for step in steps] == [(2, True), (4, True), (5, True)]


def test_a_folder_of_many_runs_is_not_taken_for_one(corpus_dir: Path) -> None:
    checkpoint = look(corpus_dir, "")
    assert checkpoint.layouts == ()
    assert "name one of them" in checkpoint.sightings[0]

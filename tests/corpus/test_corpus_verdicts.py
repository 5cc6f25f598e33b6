"""Every real checkpoint of the corpus: none INVALID, each at its own level, for a stated reason."""

from pathlib import Path

import pytest

from ckptguard.errors import ConfigError
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard.operations.validate import validate

CONTENT_ONLY = Policy(depth=Depth.CONTENT, settle_s=0, is_mtime_ignored=True)

CAPPED_AT_STRUCTURE = {
    "crc_absent": {"dcp_torch2_13_0_nocrc32_ws2"},
    "rank_local_metadata": {"dcp_torch2_13_0_no_collectives_ws2"},
    "no_checksum": {
        "accelerate_save_model",
        "accelerate_save_state_ddp_ws2",
        "dcp_torch2_13_0_fswriter_safetensors_ws2",
        "dcp_torch2_13_0_hf_consolidated_ws2",
        "dcp_torch2_13_0_hf_distributed_ws2",
        "dcp_torch2_13_0_hf_rank0_3files",
        "dcp_torch2_14_1_hf_distributed_ws2",
        "hf_hub_sharded_safetensors",
        "hf_save_pretrained",
        "hf_save_pretrained_single",
        "orbax_pytree_zarr",
        "torchsnapshot_ddp_ws2",
    },
}


def names(corpus_dir: Path) -> list[str]:
    return sorted(path.stem for path in corpus_dir.glob("*.json"))


def test_no_healthy_checkpoint_is_invalid_and_each_reaches_its_level(corpus_dir: Path) -> None:
    capped = {name: code for code, members in CAPPED_AT_STRUCTURE.items() for name in members}
    checked = names(corpus_dir)
    assert len(checked) >= 70
    for name in checked:
        report = validate(str(corpus_dir / name), policy=CONTENT_ONLY)
        judgement, codes = report.judgement, {finding.code.value for finding in report.findings}
        assert judgement.verdict is not Verdict.INVALID, (name, report.findings)
        assert judgement.verdict is Verdict.VALID, (name, report.findings)
        expected = Assurance.STRUCTURE if name in capped else Assurance.CONTENT
        assert judgement.assurance is expected, (name, codes)
        assert name not in capped or capped[name] in codes, (name, codes)


@pytest.mark.parametrize("step", [2, 4, 5])
def test_each_step_of_a_folder_of_steps_can_be_asked_for(corpus_dir: Path, step: int) -> None:
    report = validate(str(corpus_dir / "torchtitan_sync_ws2"), policy=CONTENT_ONLY, step=step)
    assert (report.step, report.judgement.verdict) == (step, Verdict.VALID)
    assert [summary.step for summary in report.steps] == [2, 4, 5]


def test_parts_under_one_root_are_one_checkpoint(corpus_dir: Path) -> None:
    report = validate(str(corpus_dir / "accelerate_fsdp2_sharded_ws2"), policy=CONTENT_ONLY)
    folders = {file.path.split("/")[0] for file in report.files}
    assert folders == {"optimizer_0", "pytorch_model_fsdp_0"}
    assert report.num_shards == 4


def test_every_byte_is_read_once(corpus_dir: Path) -> None:
    for name in ("dcp_torch2_13_0_fsdp2_ws4", "dcp_torch2_13_0_zstd_ws2", "torchtitan_sync_ws2"):
        report = validate(str(corpus_dir / name), policy=CONTENT_ONLY)
        assert report.bytes_read == report.bytes_total, name


@pytest.mark.parametrize(
    "path",
    [
        "dcp_torch2_13_0_run_ws2_step2/__0_0.distcp",
        "hf_save_pretrained/model-00001-of-00005.safetensors",
        "verl_fsdp2_ws2/global_step_1/actor/model_world_size_2_rank_0.pt",
    ],
)
def test_one_file_of_a_checkpoint_is_refused_and_its_folder_asked_for(corpus_dir: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="name the folder"):
        validate(str(corpus_dir / path), policy=CONTENT_ONLY)


def test_a_file_that_stands_for_itself_is_judged(corpus_dir: Path) -> None:
    report = validate(
        str(corpus_dir / "hf_save_pretrained_single" / "model.safetensors"), policy=CONTENT_ONLY
    )
    assert report.judgement.verdict is Verdict.VALID

"""What a trainer keeps beside the parts of a save: guarded like them, and in the way of nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from ckptguard.integrations.dcp import GuardedWriter
from ckptguard.model.finding import FindingCode
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing.edits import copy_checkpoint, flip_bit, remove

pytestmark = pytest.mark.torch

PARTS = "accelerate_fsdp2_sharded_ws2"
TRAINER = ("rng_state_0.pth", "rng_state_1.pth", "rng_state_2.pth", "scheduler.pt", "training_args.bin")
ACCELERATE = (
    "random_states_0.pkl",
    "random_states_1.pkl",
    "random_states_2.pkl",
    "scheduler.bin",
    "sampler.bin",
)
OLMO_CORE = ("train/rank0.pt", "train/rank1.pt", "train/rank2.pt")

Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path, corpus_dir: Path) -> Saved:
    """Return what copies two FSDP parts and saves other torch files beside them."""

    def saved(*names: str) -> Path:
        folder = tmp_path / "checkpoint-6"
        copy_checkpoint(corpus_dir / PARTS, folder)
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            torch.save({"state": torch.arange(300), "at": 6}, folder / name)
        return folder

    return saved


def check(folder: Path, depth: Depth = Depth.LOAD) -> Report:
    return validate(str(folder), policy=Policy(depth=depth, settle_s=0))


def codes(report: Report) -> set[FindingCode]:
    return {finding.code for finding in report.findings if finding.severity in ("error", "unknown")}


@pytest.mark.parametrize(
    "names", [TRAINER, ACCELERATE, OLMO_CORE], ids=["trainer", "accelerate", "olmo-core"]
)
def test_they_do_not_keep_the_parts_from_being_loaded(saved: Saved, names: tuple[str, ...]) -> None:
    report = check(saved(*names, "trainer_state.json"))
    assert (report.judgement.verdict, report.judgement.assurance) == (Verdict.VALID, Assurance.LOADED)
    assert {file.path for file in report.files} >= set(names)


@pytest.mark.parametrize("name", ["optimizer.bin", "rank0.pt", "train/model.pt"])
def test_any_other_torch_file_beside_the_parts_is_a_part_that_did_not_load(saved: Saved, name: str) -> None:
    report = check(saved(*TRAINER, name))
    assert (report.judgement.verdict, report.judgement.assurance) == (Verdict.VALID, Assurance.CONTENT)


@pytest.mark.parametrize("name", [*TRAINER, *OLMO_CORE])
def test_damage_in_one_is_found(saved: Saved, name: str) -> None:
    folder = saved(*TRAINER, *OLMO_CORE)
    flip_bit(folder, name, offset=(folder / name).stat().st_size // 2, bit=3)
    report = check(folder, Depth.CONTENT)
    assert report.judgement.verdict is Verdict.INVALID
    assert name in {finding.file for finding in report.findings}


@pytest.mark.parametrize("name", ["rng_state_1.pth", "train/rank1.pt"])
def test_one_that_the_others_imply_is_missed(saved: Saved, name: str) -> None:
    folder = saved(*TRAINER, *OLMO_CORE)
    remove(folder, name)
    report = check(folder, Depth.STRUCTURE)
    assert report.judgement.verdict is Verdict.INVALID
    assert FindingCode.MISSING_SHARD in codes(report)


def test_alone_they_are_no_companions(tmp_path: Path) -> None:
    torch.save({"state": torch.arange(300)}, tmp_path / "scheduler.pt")
    report = check(tmp_path)
    assert (report.format, report.judgement.assurance) == ("torch_save", Assurance.CONTENT)


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_manifests_of_the_parts_prove_the_whole(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-6"
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        save({part: torch.arange(500.0)}, storage_writer=GuardedWriter(folder / part, step=6))
    torch.save({"lr": 0.1}, folder / "scheduler.pt")
    report = check(folder)
    assert (report.judgement.assurance, report.provenance) == (Assurance.LOADED, Provenance.PROVEN)
    flip_bit(folder, "scheduler.pt", offset=(folder / "scheduler.pt").stat().st_size // 2, bit=0)
    assert check(folder, Depth.CONTENT).judgement.verdict is Verdict.INVALID

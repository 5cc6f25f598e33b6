"""Guarded writers in a real training job: two ranks, gloo, every way to save (issue 4, save side)."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import xxhash

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.manifest import MANIFEST_NAME, ChecksumSource, Manifest, Origin
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard.operations.validate import validate
from tests.integration.guarded_ranks import MATRIX, RUN, case_name

pytestmark = [pytest.mark.torch]
RANKS = 2
_WITHIN_S = 240.0
_CONTENT = Policy(depth=Depth.CONTENT, settle_s=0.0)
_LOAD = Policy(depth=Depth.LOAD, settle_s=0.0)
_STOCK_LOAD = """
import sys; sys.modules["ckptguard"] = None  # as on a machine without it
import torch, torch.distributed.checkpoint as dcp
for folder, step in zip(sys.argv[1::2], sys.argv[2::2]):
    state = {"model.w": torch.zeros(512, 640), "model.bias": torch.zeros(7)}
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    expected = torch.randn(512, 640, generator=torch.Generator().manual_seed(int(step)))
    assert torch.equal(state["model.w"], expected), folder
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the training job left."""

    folder: Path

    def outcome(self, rank: int) -> dict[str, Any]:
        """Return what one rank says of its saves."""
        told: dict[str, Any] = json.loads((self.folder / f"outcome.{rank}.json").read_text())
        return told

    def checkpoint(self, case: tuple[str, str, int, str]) -> Path:
        """Return the folder of one case of the matrix."""
        return self.folder / "matrix" / case_name(case) / f"step-{MATRIX.index(case)}"

    def spooled(self) -> list[dict[str, Any]]:
        """Return the registrations that wait."""
        return [json.loads(file.read_text()) for file in sorted((self.folder / "spool").glob("*.json"))]


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    ours = {"CKPTGUARD_SPOOL": str(folder / "spool"), "CKPTGUARD_DATA_DIR": str(folder / "no-service")}
    return kept | ours | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run the job once."""
    folder = tmp_path_factory.mktemp("job")
    module = "tests.integration.guarded_ranks"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(rank), str(RANKS), str(folder)],
            env=_environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        said = [rank.communicate(timeout=_WITHIN_S)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * RANKS, "\n".join(said)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return Job(folder=folder)


def _manifest(folder: Path) -> Manifest:
    return parse_manifest((folder / MANIFEST_NAME).read_bytes())


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _on_disk(folder: Path) -> dict[str, tuple[int, str]]:
    contents = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST_NAME}
    return {name: (len(data), xxhash.xxh3_128(data).hexdigest()) for name, data in contents.items()}


def _listed(manifest: Manifest) -> dict[str, tuple[int, str]]:
    return {file.path: (file.length_bytes, file.checksum.hex_digits) for file in manifest.files}


@pytest.mark.parametrize("case", MATRIX, ids=case_name)
def test_the_manifest_lists_exactly_the_bytes_on_disk(job: Job, case: tuple[str, str, int, str]) -> None:
    folder = job.checkpoint(case)
    manifest = _manifest(folder)
    assert _listed(manifest) == _on_disk(folder)
    assert {file.checksum_source for file in manifest.files} == {ChecksumSource.MEMORY}
    assert (manifest.run, manifest.step, manifest.world_size) == (RUN, MATRIX.index(case), RANKS)
    assert manifest.origin is Origin.SAVE


@pytest.mark.parametrize("case", MATRIX, ids=case_name)
def test_a_guarded_save_is_proven_to_be_one_save(job: Job, case: tuple[str, str, int, str]) -> None:
    report = validate(str(job.checkpoint(case)), policy=_CONTENT)
    assert (report.judgement.verdict, report.provenance) == (Verdict.VALID, Provenance.PROVEN)


@pytest.mark.parametrize("case", MATRIX, ids=case_name)
def test_metadata_names_nothing_of_ours(job: Job, case: tuple[str, str, int, str]) -> None:
    data = (job.checkpoint(case) / ".metadata").read_bytes()
    assert b"ckptguard" not in data
    assert _manifest(job.checkpoint(case)).save_id.encode() in data


def test_every_save_has_a_save_id_of_its_own(job: Job) -> None:
    assert len({_manifest(job.checkpoint(case)).save_id for case in MATRIX}) == len(MATRIX)


def test_stock_loads_it_where_ckptguard_is_not_installed(job: Job) -> None:
    cases = [case for case in MATRIX if case[3] == "torch_save"]
    told = [text for case in cases for text in (str(job.checkpoint(case)), str(MATRIX.index(case)))]
    command = [sys.executable, "-c", _STOCK_LOAD, *told]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=_environment(job.folder))
    assert done.returncode == 0, done.stderr


def test_a_guarded_save_is_proven_to_load(job: Job) -> None:
    report = validate(str(job.checkpoint(("url", "process", 3, "torch_save"))), policy=_LOAD)
    told = report.judgement
    assert (told.verdict, told.assurance and told.assurance.value, report.provenance) == (
        Verdict.VALID,
        "loaded",
        Provenance.PROVEN,
    )


def test_a_save_over_another_that_fails_leaves_nothing_that_blesses_either(job: Job) -> None:
    for rank in range(RANKS):
        assert job.outcome(rank)["torn_resave"] == "CheckpointException: the node is gone"
    left = _names(job.folder / "torn" / "step-1")
    assert "__0_0.distcp" in left
    assert not left & {MANIFEST_NAME, ".metadata"}
    assert (
        validate(str(job.folder / "torn" / "step-1"), policy=_CONTENT).judgement.verdict is not Verdict.VALID
    )


def test_a_save_over_another_is_wholly_the_new_one(job: Job) -> None:
    folder = job.folder / "resaved" / "latest"
    manifest = _manifest(folder)
    assert _listed(manifest) == _on_disk(folder)
    assert manifest.step == 2
    assert manifest.save_id != job.outcome(0)["resave"]


def test_errors_that_stock_swallows_fail_the_save_on_every_rank(job: Job) -> None:
    for rank in range(RANKS):
        told = job.outcome(rank)["swallowed_error"]
        assert told.startswith("CheckpointException: ")
        assert "items were not written, though stock reports no error: model" in told
    assert not _names(job.folder / "swallowed" / "step-1") & {MANIFEST_NAME, ".metadata"}


def test_a_rank_with_nothing_to_save_lists_its_empty_shard(job: Job) -> None:
    folder = job.folder / "empty" / "step-1"
    manifest = _manifest(folder)
    assert _listed(manifest) == _on_disk(folder)
    assert {file.path: file.length_bytes for file in manifest.files}["__1_0.distcp"] == 0
    assert validate(str(folder), policy=_CONTENT).provenance is Provenance.PROVEN


def test_ranks_that_commit_alone_are_never_blessed(job: Job) -> None:
    left = _names(job.folder / "alone" / "step-1")
    assert {"__0.metadata", "__1.metadata"} <= left
    assert not left & {MANIFEST_NAME, ".metadata"}
    assert job.outcome(0)["counters"]["no_collectives"] == 1


def test_parts_of_one_checkpoint_share_a_save_id(job: Job) -> None:
    model, optim = json.loads((job.folder / "parts.json").read_text())
    assert model["save_id"] == optim["save_id"]
    assert (model["part"], optim["part"]) == ("model", "optim")
    assert model["parts"] == optim["parts"] == ["model", "optim"]


def test_the_first_part_of_the_next_save_takes_the_blessing_from_the_others(job: Job) -> None:
    root = job.folder / "parts" / "step-1"
    before, _ = json.loads((job.folder / "parts.json").read_text())
    assert _manifest(root / "model").save_id != before["save_id"]
    assert not (root / "optim" / MANIFEST_NAME).exists()
    assert validate(str(root), policy=_CONTENT).provenance is Provenance.UNPROVEN


def test_the_registration_is_on_disk_whatever_process_finished_the_save(job: Job) -> None:
    spooled = {entry["step"]: entry for entry in job.spooled() if "/matrix/" in entry["manifest_at"]}
    assert set(spooled) == set(range(len(MATRIX)))
    for step, case in enumerate(MATRIX):
        assert spooled[step]["location"] == {"url": str(job.checkpoint(case))}
        assert spooled[step]["manifest"]["save_id"] == _manifest(job.checkpoint(case)).save_id


def test_what_is_not_told_a_run_is_not_registered(job: Job) -> None:
    assert not [entry for entry in job.spooled() if "/empty/" in entry["manifest_at"]]
    assert [entry for entry in job.spooled() if "/resaved/" in entry["manifest_at"]]


def test_nothing_went_wrong_on_the_way(job: Job) -> None:
    expected = {"no_collectives", "registrations_spooled", "saves_guarded", "service_unknown"}
    assert set(job.outcome(0)["counters"]) <= expected
    assert job.outcome(1)["counters"] == {"no_collectives": 1}

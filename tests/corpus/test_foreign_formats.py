"""Formats that torch's own readers do not open: healthy as their writers left them, and really damaged."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckptguard.clock import SystemClock
from ckptguard.model.finding import Severity
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard.operations.manifest import make_manifest
from ckptguard.operations.validate import validate
from ckptguard.storage.local import LocalStore

CONTENT = Policy(depth=Depth.CONTENT, settle_s=0, is_mtime_ignored=True)
OWN_DATA = Path(__file__).resolve().parent.parent / "data" / "corpus"

SNAPSHOT = "torchsnapshot_ddp_ws2"
ZARR = "orbax_pytree_zarr"
DATABASE = "orbax_ocdbt"
META = "torch_checkpointing_default_ws2"
ZERO1, ZERO3 = "deepspeed_zero1_ws2", "deepspeed_zero3_ws2"
MEGATRON, NEWER_MEGATRON = "megatron_dp_fullpar_ws2", "megatron0_19_py313_dp_fullpar_ws2"

Damage = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A damage to a copy of a real checkpoint, and what must be said of it."""

    source: str
    damage: Damage
    verdict: Verdict
    code: str
    file: str = ""


def only(folder: Path, pattern: str) -> Path:
    """Return the first file of a pattern, and hold that there is one."""
    found = sorted(path for path in folder.rglob(pattern) if path.is_file())
    assert found, pattern
    return found[0]


def drop(pattern: str) -> Damage:
    return lambda folder: only(folder, pattern).unlink()


def drop_folder(name: str) -> Damage:
    return lambda folder: shutil.rmtree(only(folder, f"{name}/*").parent)


def cut(pattern: str, count: int = 1) -> Damage:
    def apply(folder: Path) -> None:
        path = only(folder, pattern)
        path.write_bytes(path.read_bytes()[:-count])

    return apply


def lengthen(pattern: str) -> Damage:
    def apply(folder: Path) -> None:
        path = only(folder, pattern)
        path.write_bytes(path.read_bytes() + b"\0")

    return apply


def flip(pattern: str, at: float) -> Damage:
    def apply(folder: Path) -> None:
        path = only(folder, pattern)
        content = bytearray(path.read_bytes())
        content[int(len(content) * at)] ^= 0x10
        path.write_bytes(content)

    return apply


def empty(pattern: str) -> Damage:
    def apply(folder: Path) -> None:
        only(folder, pattern).write_bytes(b"")

    return apply


def all_of(*damages: Damage) -> Damage:
    def apply(folder: Path) -> None:
        for damage in damages:
            damage(folder)

    return apply


def zero(pattern: str) -> Damage:
    def apply(folder: Path) -> None:
        path = only(folder, pattern)
        path.write_bytes(bytes(path.stat().st_size))

    return apply


def replace_bytes(pattern: str, old: bytes, new: bytes) -> Damage:
    def apply(folder: Path) -> None:
        path = only(folder, pattern)
        content = path.read_bytes()
        assert old in content, old
        path.write_bytes(content.replace(old, new, 1))

    return apply


def replace_text(pattern: str, old: str, new: str) -> Damage:
    return replace_bytes(pattern, old.encode(), new.encode())


def lose_entry(folder: Path) -> None:
    path = only(folder, ".snapshot_metadata")
    value = json.loads(path.read_text())
    del value["manifest"]["0/model/module.freqs"]
    path.write_text(json.dumps(value))


def stale_model_states(folder: Path) -> None:
    """Replace rank 1's model states by those of another step, as a torch.save file would hold them."""
    path = only(folder, "zero_pp_rank_1_*model_states.pt")
    content = path.read_bytes()
    step = content.index(b"global_steps")
    number = content.index(b"K\x02", step)
    path.write_bytes(content[:number] + b"K\x01" + content[number + 2 :])


INVALID, UNKNOWN = Verdict.INVALID, Verdict.UNKNOWN

CASES = {
    "snapshot, batch lost": Case(
        source=SNAPSHOT, damage=drop("batched/*"), verdict=INVALID, code="missing_shard", file="batched/ab"
    ),
    "snapshot, batch cut": Case(
        source=SNAPSHOT, damage=cut("batched/*"), verdict=INVALID, code="short_shard", file="batched/ab"
    ),
    "snapshot, object flipped": Case(
        source=SNAPSHOT, damage=flip("betas", 0.06), verdict=INVALID, code="crc_mismatch", file="replicated"
    ),
    "snapshot, object empty": Case(
        source=SNAPSHOT,
        damage=empty("betas"),
        verdict=INVALID,
        code="short_shard",
    ),
    "snapshot, metadata lost": Case(
        source=SNAPSHOT, damage=drop(".snapshot_metadata"), verdict=UNKNOWN, code="unknown_layout"
    ),
    "snapshot, metadata cut": Case(
        source=SNAPSHOT, damage=cut(".snapshot_metadata"), verdict=INVALID, code="malformed_metadata"
    ),
    "snapshot, metadata zero-filled": Case(
        source=SNAPSHOT, damage=zero(".snapshot_metadata"), verdict=INVALID, code="malformed_metadata"
    ),
    "snapshot, range too long": Case(
        source=SNAPSHOT,
        damage=replace_text(".snapshot_metadata", "31140", "31141"),
        verdict=INVALID,
        code="malformed_metadata",
    ),
    "snapshot, entry lost": Case(source=SNAPSHOT, damage=lose_entry, verdict=UNKNOWN, code="missing_item"),
    "snapshot, wrong world": Case(
        source=SNAPSHOT,
        damage=replace_text(".snapshot_metadata", '"world_size": 2', '"world_size": 1'),
        verdict=UNKNOWN,
        code="malformed_metadata",
    ),
    "snapshot, outside": Case(
        source=SNAPSHOT,
        damage=replace_text(".snapshot_metadata", '"location": "batched/', '"location": "../x/'),
        verdict=INVALID,
        code="path_escape",
    ),
    "orbax, chunk lost": Case(
        source=ZARR, damage=drop("opt.mu/2.0"), verdict=INVALID, code="missing_shard", file="opt.mu/2.0"
    ),
    "orbax, chunk cut": Case(
        source=ZARR,
        damage=cut("opt.mu/2.0", 40),
        verdict=INVALID,
        code="transform_malformed",
        file="opt.mu/2.0",
    ),
    "orbax, chunk empty": Case(
        source=ZARR,
        damage=empty("opt.mu/2.0"),
        verdict=INVALID,
        code="short_shard",
        file="opt.mu/2.0",
    ),
    "orbax, chunk longer": Case(
        source=ZARR, damage=lengthen("opt.mu/2.0"), verdict=INVALID, code="transform_malformed"
    ),
    "orbax, array lost": Case(
        source=ZARR,
        damage=drop_folder("params.emb"),
        verdict=INVALID,
        code="missing_shard",
        file="params.emb",
    ),
    "orbax, array metadata cut": Case(
        source=ZARR, damage=cut("params.emb/.zarray"), verdict=INVALID, code="malformed_metadata"
    ),
    "orbax, larger shape": Case(
        source=ZARR,
        damage=replace_text("params.emb/.zarray", "[64,16]", "[84,16]"),
        verdict=INVALID,
        code="missing_shard",
    ),
    "orbax, tree zero-filled": Case(
        source=ZARR, damage=zero("_METADATA"), verdict=INVALID, code="malformed_metadata"
    ),
    "orbax, tree lost": Case(source=ZARR, damage=drop("_METADATA"), verdict=UNKNOWN, code="unknown_layout"),
    "database, tree lost": Case(
        source=DATABASE, damage=drop("state/_METADATA"), verdict=UNKNOWN, code="missing_shard"
    ),
    "orbax, never committed": Case(
        source=ZARR,
        damage=all_of(
            replace_text("_CHECKPOINT_METADATA", "1795980237929330730", "null"), drop("commit_success.txt")
        ),
        verdict=UNKNOWN,
        code="not_committed",
    ),
    "database, manifest lost": Case(
        source=DATABASE, damage=drop("state/manifest.ocdbt"), verdict=INVALID, code="not_committed"
    ),
    "database, manifest flipped": Case(
        source=DATABASE, damage=flip("state/manifest.ocdbt", 0.5), verdict=INVALID, code="crc_mismatch"
    ),
    "database, manifest cut": Case(
        source=DATABASE, damage=cut("state/manifest.ocdbt"), verdict=INVALID, code="malformed_metadata"
    ),
    "database, node flipped": Case(
        source=DATABASE,
        damage=flip("state/d/*", 0.5),
        verdict=INVALID,
        code="crc_mismatch",
        file="state/d",
    ),
    "database, nodes lost": Case(
        source=DATABASE, damage=drop("state/d/*"), verdict=INVALID, code="missing_shard"
    ),
    "database, values lost": Case(
        source=DATABASE,
        damage=drop("435ccfd956ee529ab2cf6783c62f8df2"),
        verdict=INVALID,
        code="missing_shard",
    ),
    "database, values cut": Case(
        source=DATABASE,
        damage=cut("435ccfd956ee529ab2cf6783c62f8df2", 9000),
        verdict=INVALID,
        code="short_shard",
    ),
    "database, values zero-filled": Case(
        source=DATABASE,
        damage=zero("435ccfd956ee529ab2cf6783c62f8df2"),
        verdict=INVALID,
        code="transform_malformed",
    ),
    "database, item lost": Case(
        source=DATABASE, damage=drop_folder("state"), verdict=UNKNOWN, code="missing_shard", file="state"
    ),
    "torch_checkpointing, rank lost": Case(
        source=META, damage=drop("model_1.pt"), verdict=INVALID, code="missing_shard", file="model_1.pt"
    ),
    "torch_checkpointing, rank of what is not resharded lost": Case(
        source=META, damage=drop("train_0.pt"), verdict=UNKNOWN, code="missing_shard", file="train_0.pt"
    ),
    "torch_checkpointing, flipped": Case(
        source=META,
        damage=flip("optimizer_0.pt", 0.7),
        verdict=INVALID,
        code="crc_mismatch",
        file="optimizer_0.pt",
    ),
    "torch_checkpointing, cut": Case(
        source=META, damage=cut("optimizer_0.pt"), verdict=INVALID, code="zip_malformed"
    ),
    "torch_checkpointing, metadata cut": Case(
        source=META, damage=cut("metadata.pkl", 30), verdict=INVALID, code="truncated_metadata"
    ),
    "torch_checkpointing, metadata that runs code": Case(
        source=META,
        damage=replace_bytes("metadata.pkl", b"\x80\x04", b"\x80\x04cos\nsystem\n(S'true'\ntR0"),
        verdict=INVALID,
        code="unsafe_pickle",
        file="metadata.pkl",
    ),
    "torch_checkpointing, larger world": Case(
        source=META,
        damage=replace_bytes("metadata.pkl", b"world_size\x94K\x02", b"world_size\x94K\x03"),
        verdict=UNKNOWN,
        code="missing_shard",
        file="model_2.pt",
    ),
    "ZeRO 1, last rank lost": Case(
        source=ZERO1,
        damage=drop("*rank_1_*optim_states.pt"),
        verdict=INVALID,
        code="missing_shard",
        file="bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ),
    "ZeRO 3, last rank lost": Case(
        source=ZERO3,
        damage=all_of(drop("*rank_1_*optim_states.pt"), drop("*rank_1_*model_states.pt")),
        verdict=INVALID,
        code="missing_shard",
    ),
    "ZeRO 3, rank of another step": Case(
        source=ZERO3,
        damage=stale_model_states,
        verdict=INVALID,
        code="mixed_saves",
        file="zero_pp_rank_1_mp_rank_00_model_states.pt",
    ),
    "ZeRO 1, flipped": Case(
        source=ZERO1, damage=flip("*rank_0_*optim_states.pt", 0.6), verdict=INVALID, code="crc_mismatch"
    ),
    "Megatron, common.pt lost": Case(
        source=MEGATRON, damage=drop("common.pt"), verdict=INVALID, code="missing_shard", file="common.pt"
    ),
    "Megatron, metadata.json lost": Case(
        source=MEGATRON,
        damage=drop("metadata.json"),
        verdict=UNKNOWN,
        code="not_committed",
        file="metadata.json",
    ),
    "newer Megatron, metadata.json lost": Case(
        source=NEWER_MEGATRON, damage=drop("metadata.json"), verdict=UNKNOWN, code="not_committed"
    ),
    "newer Megatron, metadata.json cut": Case(
        source=NEWER_MEGATRON, damage=cut("metadata.json"), verdict=INVALID, code="malformed_metadata"
    ),
}


def source_of(corpus_dir: Path, name: str) -> Path:
    return OWN_DATA / name if (OWN_DATA / name).is_dir() else corpus_dir / name


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


def told(report: Report) -> list[str]:
    return [
        f"{finding.code} {finding.severity} {finding.file}: {finding.message}" for finding in report.findings
    ]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_real_damage_is_named(case: Case, corpus_dir: Path, tmp_path: Path) -> None:
    folder = copied(source_of(corpus_dir, case.source), tmp_path / "copy")
    case.damage(folder)
    report = validate(str(folder), policy=CONTENT)
    assert report.judgement.verdict is case.verdict, told(report)
    named = [finding for finding in report.findings if finding.code == case.code]
    assert any((case.file in (finding.file or "")) for finding in named), told(report)


@pytest.mark.parametrize("name", sorted({case.source for case in CASES.values()}))
def test_nothing_is_said_against_the_undamaged_one(name: str, corpus_dir: Path) -> None:
    report = validate(str(source_of(corpus_dir, name)), policy=CONTENT)
    against = [one for one in report.findings if one.severity in (Severity.ERROR, Severity.UNKNOWN)]
    assert (report.judgement.verdict, against) == (Verdict.VALID, []), told(report)


@pytest.mark.parametrize("name", [SNAPSHOT, ZARR, f"{DATABASE}/10"])
def test_bare_bytes_reach_content_by_a_manifest_alone(name: str, corpus_dir: Path) -> None:
    folder = source_of(corpus_dir, name)
    assert validate(str(folder), policy=CONTENT).judgement.assurance is Assurance.STRUCTURE
    manifest = make_manifest(LocalStore(folder), "", run="r", step=10, clock=SystemClock())
    assert validate(str(folder), policy=CONTENT, manifest=manifest).judgement.assurance is Assurance.CONTENT


def test_altered_bare_bytes_are_found_by_a_manifest_alone(corpus_dir: Path, tmp_path: Path) -> None:
    folder = copied(source_of(corpus_dir, SNAPSHOT), tmp_path / "copy")
    manifest = make_manifest(LocalStore(folder), "", run="r", step=1, clock=SystemClock())
    flip("batched/*", 0.5)(folder)
    unseen = validate(str(folder), policy=CONTENT).judgement
    assert (unseen.verdict, unseen.assurance) == (Verdict.VALID, Assurance.STRUCTURE)
    seen = validate(str(folder), policy=CONTENT, manifest=manifest)
    assert seen.judgement.verdict is Verdict.INVALID
    assert "checksum_mismatch" in {finding.code.value for finding in seen.findings}


def test_a_save_in_progress_beside_it_is_passed_over(tmp_path: Path) -> None:
    folder = copied(OWN_DATA / DATABASE, tmp_path / "manager")
    copied(folder / "10", folder / "20.orbax-checkpoint-tmp")
    (folder / "20.orbax-checkpoint-tmp" / "commit_success.txt").unlink()
    report = validate(str(folder), policy=CONTENT)
    assert (report.step, report.judgement.verdict) == (10, Verdict.VALID)
    assert "unfinished_marker" in {finding.code.value for finding in report.other_findings}


def test_a_batch_newer_than_its_snapshot_is_a_torn_save(corpus_dir: Path, tmp_path: Path) -> None:
    folder = copied(source_of(corpus_dir, SNAPSHOT), tmp_path / "copy")
    for path in folder.rglob("*"):
        os.utime(path, (1_000_000, 1_000_000))
    timed = Policy(depth=Depth.CONTENT, settle_s=0)
    assert validate(str(folder), policy=timed).judgement.verdict is Verdict.VALID
    os.utime(only(folder, "batched/*"), (1_000_060, 1_000_060))
    report = validate(str(folder), policy=timed)
    assert report.judgement.verdict is Verdict.UNKNOWN, told(report)
    assert "rewritten_after_commit" in {finding.code.value for finding in report.findings}


def test_without_a_decoder_a_database_is_in_doubt_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    report = validate(str(OWN_DATA / DATABASE), policy=CONTENT)
    assert report.judgement.verdict is Verdict.UNKNOWN
    (finding,) = [one for one in report.findings if one.severity is Severity.UNKNOWN]
    assert finding.code.value == "reader_not_installed"
    assert "ckptguard[zstd]" in finding.message

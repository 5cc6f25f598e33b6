"""Manifests of real checkpoints, and of mixtures of two real saves."""

from collections.abc import Mapping
from pathlib import Path

from ckptguard.checks.against_manifest import compare_content, compare_listing
from ckptguard.checks.provenance import judge_provenance
from ckptguard.formats.manifest_json import parse_manifest, to_json
from ckptguard.model.finding import CheckName, FindingCode
from ckptguard.model.manifest import identity
from ckptguard.model.report import FileEvidence
from ckptguard.model.verdict import Provenance
from ckptguard.operations.manifest import make_manifest
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore
from ckptguard.storage.memory import MemoryStore
from ckptguard.testing.fakes import FakeClock
from ckptguard.testing.manifests import checksum_of, manifest_of

STEP_2, STEP_4 = "dcp_torch2_13_0_run_ws2_step2", "dcp_torch2_13_0_run_ws2_step4"


def contents_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def seen(contents: Mapping[str, bytes]) -> dict[str, FileEvidence]:
    return {
        path: FileEvidence(path=path, length_bytes=len(data), checksum=checksum_of(data))
        for path, data in contents.items()
    }


def test_every_real_checkpoint_agrees_with_what_was_read_back_of_it(corpus_dir: Path) -> None:
    folders = [path for path in sorted(corpus_dir.iterdir()) if path.is_dir()]
    assert len(folders) >= 60
    for folder in folders:
        manifest = make_manifest(LocalStore(folder), "", run="r", step=0, clock=FakeClock())
        contents = contents_of(folder)
        listing = list_folder(LocalStore(folder), "", max_files=10_000)
        assert compare_listing(manifest, listing.files) == (), folder.name
        assert compare_content(manifest, seen(contents)) == (), folder.name
        assert parse_manifest(to_json(manifest)) == manifest, folder.name
        assert {file.path for file in manifest.files} == contents.keys(), folder.name


def test_a_stale_shard_of_the_same_size_is_seen_by_its_checksum_alone(corpus_dir: Path) -> None:
    older, saved = contents_of(corpus_dir / STEP_2), contents_of(corpus_dir / STEP_4)
    shard = "__1_0.distcp"
    assert len(older[shard]) == len(saved[shard])
    manifest, mixture = manifest_of(saved), saved | {shard: older[shard]}
    listing = list_folder(MemoryStore(mixture), "", max_files=100)
    assert compare_listing(manifest, listing.files) == ()
    (finding,) = compare_content(manifest, seen(mixture))
    assert (finding.code, finding.file, finding.check) == (
        FindingCode.CHECKSUM_MISMATCH,
        shard,
        CheckName.CONTENT,
    )
    judged = judge_provenance(manifest, observed=seen(mixture), referenced=saved, intact=saved)
    assert [finding.code for finding in judged.result.findings] == [FindingCode.MIXED_SAVES]
    assert judged.provenance is Provenance.UNPROVEN


def test_the_later_of_two_writers_into_one_folder_is_not_the_save_of_the_first(corpus_dir: Path) -> None:
    first, second = contents_of(corpus_dir / STEP_2), contents_of(corpus_dir / STEP_4)
    findings = compare_content(manifest_of(first), seen(second))
    assert {finding.code for finding in findings} == {FindingCode.CHECKSUM_MISMATCH}
    assert identity(manifest_of(first)) != identity(manifest_of(second))


def test_times_do_not_enter_so_a_copy_stays_proven(corpus_dir: Path) -> None:
    saved = contents_of(corpus_dir / STEP_4)
    judged = judge_provenance(manifest_of(saved), observed=seen(saved), referenced=saved)
    assert judged.provenance is Provenance.PROVEN

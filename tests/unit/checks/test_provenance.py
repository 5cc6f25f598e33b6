"""What a manifest proves about one save, and what it does not (cases B10, B13, F38)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ckptguard.checks.against_manifest import compare_content
from ckptguard.checks.provenance import judge_provenance, weakest
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.manifest import ChecksumSource, Origin
from ckptguard.model.report import FileEvidence
from ckptguard.model.verdict import CheckStatus, Provenance
from ckptguard.testing.manifests import checksum_of, manifest_of

SAVED = {".metadata": b"meta", "__0_0.distcp": b"zero", "__1_0.distcp": b"one!"}
MANIFEST = manifest_of(SAVED)


def seen(contents: Mapping[str, bytes]) -> dict[str, FileEvidence]:
    return {
        path: FileEvidence(path=path, length_bytes=len(data), checksum=checksum_of(data))
        for path, data in contents.items()
    }


def test_a_save_time_manifest_from_memory_proves_one_save() -> None:
    judged = judge_provenance(MANIFEST, observed=seen(SAVED), referenced=SAVED)
    assert judged.provenance is Provenance.PROVEN
    assert (judged.result.name, judged.result.status) == (CheckName.PROVENANCE, CheckStatus.PASS)


def test_without_a_manifest_nothing_is_proven_and_nothing_condemned() -> None:
    judged = judge_provenance(None, observed=seen(SAVED))
    assert (judged.provenance, judged.result.status) == (Provenance.UNPROVEN, CheckStatus.UNKNOWN)
    assert judged.result.findings == ()


def test_a_manifest_read_back_proves_unchanged_and_no_more() -> None:
    judged = judge_provenance(manifest_of(SAVED, origin=Origin.READ_BACK), observed=seen(SAVED))
    assert (judged.provenance, judged.result.status) == (Provenance.UNCHANGED, CheckStatus.UNKNOWN)


def test_one_checksum_from_storage_is_enough_to_lose_proven() -> None:
    first, *rest = MANIFEST.files
    mixed = replace(MANIFEST, files=(replace(first, checksum_source=ChecksumSource.STORAGE), *rest))
    judged = judge_provenance(mixed, observed=seen(SAVED))
    assert (judged.provenance, judged.result.status) == (Provenance.UNCHANGED, CheckStatus.UNKNOWN)
    assert first.path in judged.result.reason


@pytest.mark.parametrize("unread", SAVED)
def test_one_unread_file_is_enough_to_prove_nothing(unread: str) -> None:
    observed = seen({path: data for path, data in SAVED.items() if path != unread})
    judged = judge_provenance(MANIFEST, observed=observed)
    assert (judged.provenance, judged.result.status) == (Provenance.UNPROVEN, CheckStatus.UNKNOWN)
    assert unread in judged.result.reason


def test_lengths_alone_prove_nothing() -> None:
    observed = {path: replace(evidence, checksum=None) for path, evidence in seen(SAVED).items()}
    assert judge_provenance(MANIFEST, observed=observed).provenance is Provenance.UNPROVEN


def test_a_file_that_a_load_opens_and_the_manifest_leaves_out_is_a_gap() -> None:
    judged = judge_provenance(MANIFEST, observed=seen(SAVED), referenced=[*SAVED, "__2_0.distcp"])
    assert (judged.provenance, judged.result.status) == (Provenance.UNPROVEN, CheckStatus.UNKNOWN)
    assert "__2_0.distcp" in judged.result.reason


def test_a_whole_shard_of_another_save_is_named_as_such() -> None:
    stale = seen(SAVED | {"__1_0.distcp": b"old!"})
    judged = judge_provenance(MANIFEST, observed=stale, intact=("__0_0.distcp", "__1_0.distcp"))
    assert [(finding.code, finding.file) for finding in judged.result.findings] == [
        (FindingCode.MIXED_SAVES, "__1_0.distcp")
    ]
    assert judged.result.status is CheckStatus.FAIL
    assert judged.provenance is Provenance.UNPROVEN


@pytest.mark.parametrize(
    ("changed", "intact"),
    [
        ({"__1_0.distcp": b"old!"}, ()),
        ({"__1_0.distcp": b"old!"}, ("__0_0.distcp",)),
        ({"__1_0.distcp": b"zero", "__0_0.distcp": b"one!"}, ("__0_0.distcp", "__1_0.distcp")),
    ],
    ids=["nothing known", "the damaged one not intact", "swapped within one save"],
)
def test_mixed_saves_is_never_guessed(changed: dict[str, bytes], intact: tuple[str, ...]) -> None:
    judged = judge_provenance(MANIFEST, observed=seen(SAVED | changed), intact=intact)
    assert judged.result.findings == ()
    assert judged.result.status is CheckStatus.UNKNOWN


@pytest.mark.parametrize("path", SAVED)
@pytest.mark.parametrize("is_intact", [True, False])
def test_it_condemns_only_what_content_condemns_already(path: str, *, is_intact: bool) -> None:
    observed = seen(SAVED | {path: b"????"})
    judged = judge_provenance(MANIFEST, observed=observed, intact=SAVED if is_intact else ())
    condemned = {finding.file for finding in judged.result.findings}
    assert condemned <= {finding.file for finding in compare_content(MANIFEST, observed)}


def test_a_doubt_from_elsewhere_takes_proven_away() -> None:
    doubt = Finding(
        code=FindingCode.MANIFEST_MISMATCH,
        check=CheckName.PROVENANCE,
        severity=Severity.UNKNOWN,
        message="two manifests disagree",
    )
    judged = judge_provenance(MANIFEST, observed=seen(SAVED), doubts=(doubt,))
    assert (judged.provenance, judged.result.status) == (Provenance.UNPROVEN, CheckStatus.UNKNOWN)
    assert judged.result.findings == (doubt,)


def test_paths_are_those_of_the_checkpoint() -> None:
    observed = seen({f"optimizer_0/{path}": data for path, data in SAVED.items()})
    judged = judge_provenance(MANIFEST, observed=observed, referenced=observed, folder="optimizer_0")
    assert judged.provenance is Provenance.PROVEN


def test_a_checkpoint_is_as_proven_as_its_weakest_part() -> None:
    assert weakest([Provenance.PROVEN, Provenance.UNCHANGED]) is Provenance.UNCHANGED
    assert weakest([Provenance.UNPROVEN, Provenance.PROVEN]) is Provenance.UNPROVEN
    assert weakest([Provenance.PROVEN]) is Provenance.PROVEN
    assert weakest([]) is Provenance.UNPROVEN

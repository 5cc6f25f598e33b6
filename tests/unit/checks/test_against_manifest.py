"""A checkpoint against its manifest: each difference named, nothing else."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ckptguard.checks.against_manifest import (
    compare_checksums,
    compare_content,
    compare_layout,
    compare_listing,
    compare_manifests,
    expected_checksums,
)
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Layout, MetadataFile, Shard
from ckptguard.model.manifest import Origin, default_save_id, identity
from ckptguard.model.report import FileEvidence
from ckptguard.storage.protocol import ObjectStat
from ckptguard.testing.manifests import checksum_of, manifest_of

SAVED = {
    ".metadata": b"meta",
    "__0_0.distcp": b"zero",
    "__1_0.distcp": b"one!",
    "__2_0.distcp": b"",
    "rng.pth": b"random",
}
MANIFEST = manifest_of(SAVED)


def listed(contents: Mapping[str, bytes]) -> dict[str, ObjectStat]:
    return {path: ObjectStat(path=path, length_bytes=len(data)) for path, data in contents.items()}


def seen(contents: Mapping[str, bytes]) -> dict[str, FileEvidence]:
    return {
        path: FileEvidence(path=path, length_bytes=len(data), checksum=checksum_of(data))
        for path, data in contents.items()
    }


def without(path: str) -> dict[str, bytes]:
    return {name: data for name, data in SAVED.items() if name != path}


def only(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def test_what_was_saved_gives_no_finding() -> None:
    assert compare_listing(MANIFEST, listed(SAVED)) == ()
    assert compare_content(MANIFEST, seen(SAVED)) == ()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("__1_0.distcp", FindingCode.MISSING_SHARD),
        ("__2_0.distcp", FindingCode.MISSING_SHARD),
        (".metadata", FindingCode.NOT_COMMITTED),
        ("rng.pth", FindingCode.MISSING_SHARD),
    ],
)
def test_a_missing_file_is_named_by_its_role(path: str, code: FindingCode) -> None:
    finding = only(compare_listing(MANIFEST, listed(without(path))))
    assert (finding.code, finding.check, finding.file) == (code, CheckName.EXISTENCE, path)
    assert (finding.severity, finding.basis) == (Severity.ERROR, Basis.DAMAGE)
    assert finding.expected == f"a file of {len(SAVED[path])} bytes"


def test_a_missing_file_of_another_case_is_hinted_at() -> None:
    files = listed(without("__1_0.distcp") | {"__1_0.DISTCP": b"one!"})
    missing, unlisted = compare_listing(MANIFEST, files)
    assert "__1_0.DISTCP" in missing.message
    assert unlisted.code is FindingCode.UNREFERENCED_FILE


def test_a_link_out_of_the_store_is_a_doubt_not_damage() -> None:
    finding = only(compare_listing(MANIFEST, listed(without("__1_0.distcp")), escapes=("__1_0.distcp",)))
    assert (finding.code, finding.severity) == (FindingCode.PATH_ESCAPE, Severity.UNKNOWN)


@pytest.mark.parametrize(
    ("path", "data", "code", "extent"),
    [
        ("__1_0.distcp", b"one", FindingCode.SHORT_SHARD, (3, 1)),
        ("__1_0.distcp", b"", FindingCode.SHORT_SHARD, (0, 4)),
        ("__1_0.distcp", b"one!!!", FindingCode.LONG_SHARD, (4, 2)),
        ("__2_0.distcp", b"x", FindingCode.LONG_SHARD, (0, 1)),
        ("rng.pth", b"rando", FindingCode.SHORT_SHARD, (5, 1)),
        (".metadata", b"met", FindingCode.TRUNCATED_METADATA, (3, 1)),
        (".metadata", b"", FindingCode.EMPTY_METADATA, (0, 4)),
        (".metadata", b"meta+", FindingCode.LONG_SHARD, (4, 1)),
    ],
)
def test_another_length_is_told_to_the_byte(
    path: str, data: bytes, code: FindingCode, extent: tuple[int, int]
) -> None:
    finding = only(compare_listing(MANIFEST, listed(SAVED | {path: data})))
    assert (finding.code, finding.check, finding.file) == (code, CheckName.BYTE_COUNT, path)
    assert (finding.offset, finding.length_bytes) == extent
    assert (finding.expected, finding.observed) == (f"exactly {len(SAVED[path])} bytes", f"{len(data)} bytes")
    assert finding.basis is Basis.DAMAGE


def test_what_nobody_listed_is_an_info_and_manifests_are_nobodys_business() -> None:
    extra = {"meta.pt": b"", "ckptguard.manifest.json": b"{}", "__0.ckptguard.manifest.json": b"{}"}
    finding = only(compare_listing(MANIFEST, listed(SAVED | extra)))
    assert (finding.code, finding.severity, finding.file) == (
        FindingCode.UNREFERENCED_FILE,
        Severity.INFO,
        "meta.pt",
    )


def test_findings_are_bounded_and_counted() -> None:
    findings = compare_listing(manifest_of({f"__{rank}_0.distcp": b"" for rank in range(1000)}), {})
    assert len(findings) == 21
    assert "980 more" in findings[-1].message
    assert findings[-1].basis is Basis.DAMAGE


def test_a_part_is_held_against_its_own_folder_only() -> None:
    files = listed({f"optimizer_0/{path}": data for path, data in SAVED.items()} | {"model/x": b"y"})
    assert compare_listing(MANIFEST, files, folder="optimizer_0") == ()
    del files["optimizer_0/rng.pth"]
    assert only(compare_listing(MANIFEST, files, folder="optimizer_0")).file == "optimizer_0/rng.pth"


@pytest.mark.parametrize("path", [".metadata", "__1_0.distcp", "rng.pth"])
def test_other_bytes_of_the_same_length_are_damage_whatever_the_role(path: str) -> None:
    changed = SAVED | {path: SAVED[path][:-1] + b"?"}
    assert compare_listing(MANIFEST, listed(changed)) == ()
    finding = only(compare_content(MANIFEST, seen(changed)))
    assert (finding.code, finding.check) == (FindingCode.CHECKSUM_MISMATCH, CheckName.CONTENT)
    assert (finding.severity, finding.basis, finding.file) == (Severity.ERROR, Basis.DAMAGE, path)
    assert finding.expected == str(checksum_of(SAVED[path]))
    assert finding.observed == str(checksum_of(changed[path]))


def test_swapped_files_name_each_other() -> None:
    swapped = SAVED | {"__0_0.distcp": SAVED["__1_0.distcp"], "__1_0.distcp": SAVED["__0_0.distcp"]}
    first, second = compare_content(MANIFEST, seen(swapped))
    assert first.message.endswith("it holds the bytes of __1_0.distcp")
    assert second.message.endswith("it holds the bytes of __0_0.distcp")


def test_an_unread_file_is_not_judged() -> None:
    assert compare_content(MANIFEST, {}) == ()


def test_a_checksum_that_cannot_be_compared_caps_and_never_condemns() -> None:
    other = Checksum(algorithm=Algorithm.SHA256, hex_digits="0" * 64)
    evidence = seen(SAVED)
    evidence["rng.pth"] = replace(evidence["rng.pth"], checksum=other)
    evidence["__0_0.distcp"] = replace(evidence["__0_0.distcp"], checksum=None)
    findings = compare_content(MANIFEST, evidence)
    assert [finding.file for finding in findings] == ["__0_0.distcp", "rng.pth"]
    assert {(finding.code, finding.severity) for finding in findings} == {
        (FindingCode.NO_CHECKSUM, Severity.WARNING)
    }


def test_checksums_from_elsewhere_are_compared_the_same_way() -> None:
    finding = only(
        compare_checksums({"a": checksum_of(b"x")}, seen({"a": b"y", "b": b"z"}), source="integrity.json")
    )
    assert (finding.code, finding.file) == (FindingCode.CHECKSUM_MISMATCH, "a")
    assert "integrity.json" in finding.message


def test_expected_checksums_are_by_path_in_the_checkpoint() -> None:
    assert expected_checksums(MANIFEST, folder="p")["p/rng.pth"] == checksum_of(b"random")


def layout_of(*shards: str, save_id: str | None = "save-1", format_name: str = "dcp") -> Layout:
    return Layout(
        format=format_name,
        save_id=save_id,
        metadata_files=(MetadataFile(path=".metadata", length_bytes=4, checksum=checksum_of(b"meta")),),
        shards=tuple(
            Shard(path=path, encoding=Encoding.TORCH_ZIP_ITEMS, items=(), min_length_bytes=0)
            for path in shards
        ),
    )


def test_metadata_of_the_same_save_agrees() -> None:
    assert compare_layout(MANIFEST, (layout_of("__0_0.distcp"),)) == ()
    assert compare_layout(MANIFEST, (layout_of("__0_0.distcp", save_id=None),)) == ()
    assert compare_layout(MANIFEST, ()) == ()


def test_a_derived_save_id_contradicts_nobody() -> None:
    derived = replace(MANIFEST, save_id=default_save_id(identity(MANIFEST)))
    assert compare_layout(derived, (layout_of("__0_0.distcp", save_id="another"),)) == ()


@pytest.mark.parametrize(
    ("layout", "about"),
    [
        (layout_of("__0_0.distcp", save_id="save-2"), "save id"),
        (layout_of("__0_0.distcp", format_name="safetensors"), "format"),
        (layout_of("__0_0.distcp", "__9_0.distcp"), "__9_0.distcp"),
    ],
    ids=["save id", "format", "files"],
)
def test_a_disagreement_is_a_doubt(layout: Layout, about: str) -> None:
    finding = only(compare_layout(MANIFEST, (layout,)))
    assert (finding.code, finding.severity) == (FindingCode.MANIFEST_MISMATCH, Severity.UNKNOWN)
    assert finding.check is CheckName.PROVENANCE
    assert about in finding.message


def test_two_manifests_of_the_same_bytes_agree() -> None:
    assert compare_manifests(MANIFEST, manifest_of(SAVED, origin=Origin.READ_BACK, save_id="other")) == ()


def test_two_manifests_of_other_bytes_are_a_doubt_that_names_the_file() -> None:
    other = manifest_of(SAVED | {"rng.pth": b"other!"})
    finding = only(compare_manifests(MANIFEST, other, other_file="ckptguard.manifest.json"))
    assert (finding.code, finding.severity) == (FindingCode.MANIFEST_MISMATCH, Severity.UNKNOWN)
    assert finding.file == "ckptguard.manifest.json"
    assert "rng.pth" in finding.message
    assert (finding.expected, finding.observed) == (str(identity(MANIFEST)), str(identity(other)))

"""Hold a checkpoint against its manifests: the one given, or those that lie beside the shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckptguard.checks.against_manifest import (
    compare_content,
    compare_layout,
    compare_listing,
    compare_manifests,
    expected_checksums,
    in_checkpoint,
    referenced_paths,
)
from ckptguard.checks.manifest_scope import check_scope
from ckptguard.checks.phrases import some_of
from ckptguard.checks.provenance import ProvenanceJudgement, judge_provenance, weakest
from ckptguard.model.checksum import Checksum
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.manifest import Manifest, Origin, identity
from ckptguard.model.report import FileEvidence
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance
from ckptguard.operations.integrity import integrity_folders, load_integrity
from ckptguard.operations.look import Look
from ckptguard.operations.manifests_beside import ManifestBeside, load_manifest_beside, manifest_folders
from ckptguard.storage.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The manifests that a checkpoint is held against.

    Args:
        by_folder: Manifest of each folder of the checkpoint that has one; "" is the root.
        findings: What reading them turned up.
    """

    by_folder: Mapping[str, Manifest]
    findings: tuple[Finding, ...] = ()

    @property
    def expected(self) -> dict[str, Checksum]:
        """Checksums by path, all manifests together."""
        return {
            path: checksum
            for folder, manifest in self.by_folder.items()
            for path, checksum in expected_checksums(manifest, folder=folder).items()
        }

    @property
    def saved_paths(self) -> frozenset[str]:
        """What manifests of the writer itself list: of equal bytes the times mean nothing more."""
        return frozenset(
            in_checkpoint(folder, file.path)
            for folder, manifest in self.by_folder.items()
            if manifest.origin is Origin.SAVE
            for file in manifest.files
        )

    @property
    def identity(self) -> Checksum | None:
        """Identity of the one manifest; None where there is none, or one per part."""
        only = next(iter(self.by_folder.values()), None)
        return identity(only) if only is not None and len(self.by_folder) == 1 else None


def find_manifests(store: Store, seen: Look, given: Mapping[str, Manifest]) -> Held:
    """Read the manifests that lie beside the shards; those given, by folder, win over all of them.

    Raises:
        StoreError: A manifest that is listed could not be read.
    """
    own = manifest_folders(seen.listing)
    beside = [load_manifest_beside(store, seen.listing, folder=folder) for folder in own]
    beside += [
        load_integrity(store, seen.listing, folder, step=seen.checkpoint.step or 0)
        for folder in integrity_folders(seen.listing)
        if folder not in own
    ]
    findings = [finding for found in beside for finding in found.findings]
    strays = [found for found in beside if _is_stray(found, seen)]
    findings += [_stray(found) for found in strays]
    manifests = {
        found.folder: found.manifest for found in beside if found.manifest is not None and found not in strays
    }
    if not given:
        return Held(by_folder=manifests, findings=tuple(findings))
    for folder in sorted(given.keys() & manifests.keys()):
        files = [file for found in beside if found.folder == folder for file in found.files]
        findings += compare_manifests(given[folder], manifests[folder], other_file=files[0])
    return Held(by_folder=given, findings=tuple(findings))


def _is_stray(found: ManifestBeside, seen: Look) -> bool:
    """Say whether a manifest stands where no part is, and does not claim that one was."""
    if found.manifest is None or not found.folder or _below(seen.checkpoint.layouts, found.folder):
        return False
    part = found.manifest.part
    return part is None or not f"/{found.folder}".endswith(f"/{part}")


def _stray(found: ManifestBeside) -> Finding:
    """Doubt, and no more: a copy put aside, or the last file left of a lost part."""
    return Finding(
        code=FindingCode.MANIFEST_MISMATCH,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        file=found.files[0],
        expected="a part of the checkpoint beside its manifest",
        observed="nothing of a known format",
        message=f"{found.files[0]} is of a part that is not there; if it is a copy, move it away",
    )


def hold_structure(held: Held, seen: Look) -> list[Finding]:
    """Compare names, lengths and layouts; no byte of a shard is read."""
    findings: list[Finding] = []
    parts = {layout.part for layout in seen.checkpoint.layouts}
    for folder, manifest in held.by_folder.items():
        findings += check_scope(manifest, folder=folder, parts=parts, step=seen.checkpoint.step)
        escapes = seen.listing.escapes
        findings += compare_listing(manifest, seen.listing.files, escapes=escapes, folder=folder)
        findings += compare_layout(manifest, _below(seen.checkpoint.layouts, folder), folder=folder)
    return findings


def hold_content(held: Held, observed: Mapping[str, FileEvidence]) -> list[Finding]:
    """Compare checksums."""
    return [
        finding
        for folder, manifest in held.by_folder.items()
        for finding in compare_content(manifest, observed, folder=folder)
    ]


def judge_held(
    held: Held,
    seen: Look,
    *,
    observed: Mapping[str, FileEvidence],
    intact: frozenset[str],
    doubts: Sequence[Finding],
) -> ProvenanceJudgement:
    """Say how far the manifests prove that all files come from one save.

    Args:
        held: The manifests.
        seen: The checkpoint.
        observed: What was read.
        intact: Files in which nothing is damaged.
        doubts: Findings of check `provenance` from elsewhere.
    """
    by_folder: Mapping[str, Manifest | None] = held.by_folder or {"": None}
    judgements = [
        judge_provenance(
            manifest,
            observed=observed,
            referenced=referenced_paths(_below(seen.checkpoint.layouts, folder)),
            intact=intact,
            folder=folder,
            doubts=doubts if number == 0 else (),
        )
        for number, (folder, manifest) in enumerate(by_folder.items())
    ]
    uncovered = sorted(set(referenced_paths(seen.checkpoint.layouts)) - set(held.expected))
    provenance = weakest(judgement.provenance for judgement in judgements)
    result = _united([judgement.result for judgement in judgements])
    if uncovered and held.by_folder:
        provenance = Provenance.UNPROVEN
        if result.status is CheckStatus.PASS:
            reason = f"no manifest covers {some_of(uncovered)}"
            result = replace(result, status=CheckStatus.UNKNOWN, reason=reason)
    return ProvenanceJudgement(provenance=provenance, result=result)


def _united(results: Sequence[CheckResult]) -> CheckResult:
    for status in (CheckStatus.FAIL, CheckStatus.UNKNOWN, CheckStatus.PASS):
        decisive = next((result for result in results if result.status is status), None)
        if decisive is not None:
            break
    assert decisive is not None  # noqa: S101 - there is at least one
    return CheckResult(
        name=CheckName.PROVENANCE,
        status=decisive.status,
        reason=decisive.reason,
        findings=tuple(finding for result in results for finding in result.findings),
    )


def _below(layouts: Sequence[Layout], folder: str) -> list[Layout]:
    return [layout for layout in layouts if not folder or f"{layout.part}/".startswith(f"{folder}/")]

"""Check 6: do all files come from one save?

Nothing inside a shard names its save, so only a manifest can tell, and only as far as
its origin reaches. This check says what is known; it condemns nothing by itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptguard.checks.against_manifest import in_checkpoint
from ckptguard.checks.bounded import bounded
from ckptguard.checks.phrases import counted, some_of
from ckptguard.model.checksum import Checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.manifest import ChecksumSource, Manifest, ManifestFile, Origin
from ckptguard.model.report import FileEvidence
from ckptguard.model.verdict import CheckResult, CheckStatus, Provenance

_STRONGEST_FIRST: Final = (Provenance.PROVEN, Provenance.UNCHANGED, Provenance.UNPROVEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceJudgement:
    """What is known about one manifest's files, and how the check ended."""

    provenance: Provenance
    result: CheckResult


def judge_provenance(
    manifest: Manifest | None,
    *,
    observed: Mapping[str, FileEvidence],
    referenced: Collection[str] = (),
    intact: Collection[str] = (),
    doubts: Sequence[Finding] = (),
    folder: str = "",
) -> ProvenanceJudgement:
    """Say how far a manifest proves that all files come from one save.

    `proven` needs a manifest made by the writer, every checksum of which was taken from
    memory, and every listed file read and equal. Equal lengths count for nothing.

    Args:
        manifest: None if there is none, or none could be read.
        observed: What was read, by path. All paths are relative to the checkpoint's root.
        referenced: Metadata files and shards that a load would open; a manifest that
            leaves one out proves nothing about the whole.
        intact: Files whose own structure and CRC-32s hold. One of these with another
            checksum was written whole, by another save: `mixed_saves`.
        doubts: Findings of this check from elsewhere (`manifest_mismatch`).
        folder: Folder that the manifest covers, in the checkpoint.
    """
    if manifest is None:
        return _ended(Provenance.UNPROVEN, "no manifest says which files belong together", doubts)
    listed = {in_checkpoint(folder, file.path): file for file in manifest.files}
    unequal = [path for path, file in listed.items() if not _is_equal(file, observed.get(path))]
    saved = {file.checksum for file in manifest.files}
    strangers = (path for path in unequal if path in intact and _is_new(observed.get(path), saved))
    findings = bounded([*(_from_another_save(path, listed[path]) for path in strangers), *doubts])
    gap = _gap(listed, unequal, sorted(set(referenced) - listed.keys())) or _first_doubt(doubts)
    if gap is not None:
        return _ended(Provenance.UNPROVEN, gap, findings)
    return _by_origin(manifest, findings)


def weakest(provenances: Iterable[Provenance]) -> Provenance:
    """Return what is known of a whole checkpoint from its parts; of nothing, nothing is."""
    return max(provenances, key=_STRONGEST_FIRST.index, default=Provenance.UNPROVEN)


def _is_equal(file: ManifestFile, evidence: FileEvidence | None) -> bool:
    return (
        evidence is not None
        and evidence.checksum == file.checksum
        and evidence.length_bytes == file.length_bytes
    )


def _is_new(evidence: FileEvidence | None, saved: Collection[Checksum]) -> bool:
    """Say whether these bytes are of no file of this save; swapped files are."""
    if evidence is None or evidence.checksum is None or evidence.checksum in saved:
        return False
    return evidence.checksum.algorithm in {checksum.algorithm for checksum in saved}


def _gap(listed: Collection[str], unequal: Sequence[str], unlisted: Sequence[str]) -> str | None:
    if unequal:
        share = f"{len(unequal)} of {counted(len(listed), 'listed file')}"
        return f"{share} not proven equal: {some_of(unequal)}"
    if unlisted:
        return f"the manifest does not cover {some_of(unlisted)}"
    return None


def _first_doubt(doubts: Sequence[Finding]) -> str | None:
    return next((doubt.message for doubt in doubts if doubt.severity is Severity.UNKNOWN), None)


def _by_origin(manifest: Manifest, findings: Sequence[Finding]) -> ProvenanceJudgement:
    since = f"{manifest.created_at:%Y-%m-%d %H:%M:%S} UTC"
    if manifest.origin is Origin.READ_BACK:
        return _ended(Provenance.UNCHANGED, f"unchanged since it was read back at {since}, no more", findings)
    from_storage = [file.path for file in manifest.files if file.checksum_source is ChecksumSource.STORAGE]
    if from_storage:
        reason = f"unchanged since {since}; not hashed from memory at save: {some_of(from_storage)}"
        return _ended(Provenance.UNCHANGED, reason, findings)
    return _ended(Provenance.PROVEN, f"all files are those that the save at {since} wrote", findings)


def _ended(provenance: Provenance, reason: str, findings: Sequence[Finding]) -> ProvenanceJudgement:
    is_failed = any(finding.severity is Severity.ERROR for finding in findings)
    passed = CheckStatus.PASS if provenance is Provenance.PROVEN else CheckStatus.UNKNOWN
    return ProvenanceJudgement(
        provenance=provenance,
        result=CheckResult(
            name=CheckName.PROVENANCE,
            status=CheckStatus.FAIL if is_failed else passed,
            reason=reason,
            findings=tuple(findings),
        ),
    )


def _from_another_save(path: str, file: ManifestFile) -> Finding:
    return Finding(
        code=FindingCode.MIXED_SAVES,
        check=CheckName.PROVENANCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        file=path,
        expected=str(file.checksum),
        message=f"{path} is whole in itself and not the file of this save: it comes from another one",
    )

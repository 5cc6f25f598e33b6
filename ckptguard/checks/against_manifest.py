"""A checkpoint held against its manifest: files there, lengths, checksums, metadata.

The paths of a manifest are relative to the folder that it covers; all others here are
relative to the checkpoint's root, and `folder` is where the one lies in the other.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from ckptguard.checks.bounded import bounded
from ckptguard.checks.phrases import counted, some_of
from ckptguard.model.checksum import Checksum
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.manifest import (
    DERIVED_SAVE_ID,
    UNKNOWN_FORMAT,
    Manifest,
    ManifestFile,
    Role,
    fold_path,
    identity,
)
from ckptguard.model.report import FileEvidence
from ckptguard.model.saving_marker import is_left_by_ckptguard
from ckptguard.storage.protocol import ObjectStat

_ABSENT: Final = {
    Role.SHARD: FindingCode.MISSING_SHARD,
    Role.METADATA: FindingCode.NOT_COMMITTED,
    Role.SIDECAR: FindingCode.MISSING_SHARD,
}
_damage = partial(Finding, severity=Severity.ERROR, basis=Basis.DAMAGE)
_doubt = partial(Finding, severity=Severity.UNKNOWN)


def compare_listing(
    manifest: Manifest,
    files: Mapping[str, ObjectStat],
    *,
    escapes: Collection[str] = (),
    folder: str = "",
) -> tuple[Finding, ...]:
    """Report every listed file that is missing or of another length, and what nobody listed.

    The lengths of a manifest are exact, so both directions count. Equal lengths prove
    nothing about content: a stale shard of the same layout has them too.

    Args:
        manifest: What should be there.
        files: What is there, by path.
        escapes: Links out of the store's root; what they lead to is not known.
        folder: Folder that the manifest covers, in the checkpoint.

    Returns:
        Findings of the checks `existence` and `byte_count`; bounded per kind.
    """
    listed = {in_checkpoint(folder, file.path): file for file in manifest.files}
    absent = {path: file for path, file in listed.items() if path not in files}
    return bounded(
        chain(
            _absent_findings(absent, files, escapes),
            _length_findings(listed, files),
            _unlisted_findings(listed, files, folder),
        )
    )


def in_checkpoint(folder: str, path: str) -> str:
    """Return a manifest's path relative to the checkpoint's root."""
    return f"{folder}/{path}" if folder else path


def _absent_findings(
    absent: Mapping[str, ManifestFile], files: Mapping[str, ObjectStat], escapes: Collection[str]
) -> Iterator[Finding]:
    look_alikes = {fold_path(path): path for path in files} if absent else {}
    for path, file in absent.items():
        if any(path == escape or path.startswith(f"{escape}/") for escape in escapes):
            yield _escaping(path)
        else:
            yield _missing(path, file, look_alikes.get(fold_path(path)))


def _escaping(path: str) -> Finding:
    return _doubt(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        file=path,
        expected="a regular file inside the root",
        observed="a link out of it, or another kind of file",
        message=f"{path} is a link out of the allowed root, or not a regular file; it was not opened",
    )


def _missing(path: str, file: ManifestFile, look_alike: str | None) -> Finding:
    hint = f"; {look_alike} is there, which differs in case or Unicode form" if look_alike else ""
    return _damage(
        code=_ABSENT[file.role],
        check=CheckName.EXISTENCE,
        file=path,
        expected=f"a file of {file.length_bytes} bytes",
        observed="no such file",
        message=f"missing {file.role} {path}, which the manifest lists{hint}",
    )


def _length_findings(
    listed: Mapping[str, ManifestFile], files: Mapping[str, ObjectStat]
) -> Iterator[Finding]:
    for path, file in listed.items():
        stat = files.get(path)
        if stat is not None and stat.length_bytes != file.length_bytes:
            yield _other_length(path, file, stat.length_bytes)


def _other_length(path: str, file: ManifestFile, observed: int) -> Finding:
    difference = observed - file.length_bytes
    change = f"{counted(abs(difference), 'byte')} {'longer' if difference > 0 else 'shorter'}"
    return _damage(
        code=_length_code(file, observed),
        check=CheckName.BYTE_COUNT,
        file=path,
        offset=min(observed, file.length_bytes),
        length_bytes=abs(difference),
        expected=f"exactly {file.length_bytes} bytes",
        observed=f"{observed} bytes",
        message=f"{path} is {change} than the manifest says",
    )


def _length_code(file: ManifestFile, observed: int) -> FindingCode:
    if observed > file.length_bytes:
        return FindingCode.LONG_SHARD
    if file.role is Role.METADATA:
        return FindingCode.TRUNCATED_METADATA if observed else FindingCode.EMPTY_METADATA
    return FindingCode.SHORT_SHARD


def _unlisted_findings(
    listed: Mapping[str, ManifestFile], files: Mapping[str, ObjectStat], folder: str
) -> Iterator[Finding]:
    head = in_checkpoint(folder, "")
    for path in sorted(files):
        if path.startswith(head) and path not in listed and not is_left_by_ckptguard(path):
            yield Finding(
                code=FindingCode.UNREFERENCED_FILE,
                check=CheckName.EXISTENCE,
                severity=Severity.INFO,
                file=path,
                message=f"{path} is not in the manifest: nothing is said about its content",
            )


def expected_checksums(manifest: Manifest, *, folder: str = "") -> dict[str, Checksum]:
    """Return the checksum of every listed file by path: what a reader must compute to compare."""
    return {in_checkpoint(folder, file.path): file.checksum for file in manifest.files}


def compare_content(
    manifest: Manifest, observed: Mapping[str, FileEvidence], *, folder: str = ""
) -> tuple[Finding, ...]:
    """Report every listed file whose bytes have another checksum, or none to compare.

    Args:
        manifest: What was saved.
        observed: What was read, by path. A file that is not here was not read, and
            nothing is said about it: the caller knows why.
        folder: Folder that the manifest covers, in the checkpoint.

    Returns:
        Findings of the check `content`; bounded per kind.
    """
    return compare_checksums(expected_checksums(manifest, folder=folder), observed)


def compare_checksums(
    expected: Mapping[str, Checksum], observed: Mapping[str, FileEvidence], *, source: str = "the manifest"
) -> tuple[Finding, ...]:
    """Report every file whose bytes have another checksum than `source` says.

    As `compare_content`, for checksums from anywhere (Megatron's `integrity.json`).
    """
    owners = {checksum: path for path, checksum in expected.items()}
    compared = (
        _Comparison(path, checksum, observed[path].checksum, source)
        for path, checksum in sorted(expected.items())
        if path in observed
    )
    return bounded(finding for comparison in compared for finding in _content_findings(comparison, owners))


class _Comparison(NamedTuple):
    path: str
    expected: Checksum
    observed: Checksum | None
    source: str


def _content_findings(compared: _Comparison, owners: Mapping[Checksum, str]) -> Iterator[Finding]:
    observed = compared.observed
    if observed is None or observed.algorithm is not compared.expected.algorithm:
        yield _not_comparable(compared)
    elif observed != compared.expected:
        yield _mismatch(compared, owner=owners.get(observed))


def _not_comparable(compared: _Comparison) -> Finding:
    wanted = compared.expected.algorithm
    return Finding(
        code=FindingCode.NO_CHECKSUM,
        check=CheckName.CONTENT,
        severity=Severity.WARNING,
        file=compared.path,
        expected=wanted.value,
        observed=compared.observed.algorithm.value if compared.observed else "none",
        message=f"{compared.path} was not compared with {compared.source}: no {wanted} of it was computed",
    )


def _mismatch(compared: _Comparison, *, owner: str | None) -> Finding:
    hint = f": it holds the bytes of {owner}" if owner else ""
    return _damage(
        code=FindingCode.CHECKSUM_MISMATCH,
        check=CheckName.CONTENT,
        file=compared.path,
        expected=str(compared.expected),
        observed=str(compared.observed),
        message=f"{compared.path} does not hold the bytes that {compared.source} names{hint}",
    )


def compare_layout(manifest: Manifest, layouts: Sequence[Layout], *, folder: str = "") -> tuple[Finding, ...]:
    """Report where manifest and metadata speak of different saves.

    Neither is known to be the right one, so each difference is a doubt: UNKNOWN.

    Args:
        manifest: What was saved.
        layouts: What the metadata below `folder` describes.
        folder: Folder that the manifest covers, in the checkpoint.
    """
    return bounded(_layout_findings(manifest, layouts, folder))


def _layout_findings(manifest: Manifest, layouts: Sequence[Layout], folder: str) -> Iterator[Finding]:
    formats = "+".join(sorted({layout.format for layout in layouts}))
    if layouts and manifest.format not in (formats, UNKNOWN_FORMAT):
        yield _disagreement("format", manifest.format, formats)
    save_ids = sorted({layout.save_id for layout in layouts if layout.save_id is not None})
    if save_ids and not manifest.save_id.startswith(DERIVED_SAVE_ID) and manifest.save_id not in save_ids:
        yield _disagreement("save id", manifest.save_id, some_of(save_ids))
    listed = {in_checkpoint(folder, file.path) for file in manifest.files}
    for path in referenced_paths(layouts):
        if path not in listed:
            yield _disagreement(path, "not listed", "referred to", file=path)


def referenced_paths(layouts: Iterable[Layout]) -> tuple[str, ...]:
    """Return the metadata files and shards of some layouts, sorted: what a load will open."""
    opened = [layout for layout in layouts if not layout.is_companion]
    return tuple(
        sorted(
            {file.path for layout in opened for file in layout.metadata_files}
            | {shard.path for layout in opened for shard in layout.shards}
        )
    )


def _disagreement(about: str, by_manifest: str, by_metadata: str, *, file: str | None = None) -> Finding:
    return _doubt(
        code=FindingCode.MANIFEST_MISMATCH,
        check=CheckName.PROVENANCE,
        file=file,
        expected=by_manifest,
        observed=by_metadata,
        message=f"manifest and metadata disagree about {about}: {by_manifest} / {by_metadata}",
    )


def compare_manifests(
    in_force: Manifest, other: Manifest, *, other_file: str | None = None
) -> tuple[Finding, ...]:
    """Report whether another manifest of the same checkpoint speaks of other bytes.

    Args:
        in_force: The one that the checkpoint is held against.
        other: E.g. the one beside the shards.
        other_file: Where the other one lies, for the finding.
    """
    expected, observed = identity(in_force), identity(other)
    if expected == observed:
        return ()
    return (
        _doubt(
            code=FindingCode.MANIFEST_MISMATCH,
            check=CheckName.PROVENANCE,
            file=other_file,
            expected=str(expected),
            observed=str(observed),
            message=f"two manifests of this checkpoint disagree about {_first_difference(in_force, other)}",
        ),
    )


def _first_difference(in_force: Manifest, other: Manifest) -> str:
    ours, theirs = expected_checksums(in_force), expected_checksums(other)
    differing = sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))
    return some_of(differing) if differing else "format, lengths or items"

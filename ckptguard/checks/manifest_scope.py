"""What a manifest says about the whole checkpoint that its part belongs to: other parts, the step."""

from collections.abc import Collection, Iterator
from functools import partial

from ckptguard.checks.against_manifest import in_checkpoint
from ckptguard.checks.bounded import bounded
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.manifest import Manifest, Origin

_missing = partial(
    Finding,
    code=FindingCode.NOT_COMMITTED,
    check=CheckName.EXISTENCE,
    severity=Severity.ERROR,
    basis=Basis.DAMAGE,
)
_mismatch = partial(
    Finding, code=FindingCode.MANIFEST_MISMATCH, check=CheckName.PROVENANCE, severity=Severity.WARNING
)


def check_scope(
    manifest: Manifest, *, folder: str, parts: Collection[str], step: int | None
) -> tuple[Finding, ...]:
    """Report parts that one part's manifest names and that are not here, and another step.

    A whole part that is lost leaves nothing behind that could look damaged: only the
    manifests of the others know of it. A folder may be renamed, so a step is a warning.

    Args:
        manifest: Of one part, or of the whole.
        folder: Where it lies in the checkpoint.
        parts: Folders that hold a part of some format.
        step: What the checkpoint's folder is called; None if that tells no step.
    """
    return bounded([*_absent_parts(manifest, folder, parts), *_other_step(manifest, step)])


def _absent_parts(manifest: Manifest, folder: str, parts: Collection[str]) -> Iterator[Finding]:
    around = _folder_around(manifest.part, folder)
    if around is None:
        return
    for part in manifest.parts:
        place = in_checkpoint(around, part)
        if not any(known == place or known.startswith(f"{place}/") for known in parts):
            yield _missing(
                file=place,
                expected=f"a part of {len(manifest.parts)}",
                observed="nothing of a known format",
                message=f"no part {place}, which the manifest of {folder or 'this folder'} says belongs here",
            )


def _folder_around(part: str | None, folder: str) -> str | None:
    """Return the folder that `parts` count from; None where a part was asked for by itself."""
    if part is None or folder == part:
        return ""
    return folder.removesuffix(f"/{part}") if folder.endswith(f"/{part}") else None


def _other_step(manifest: Manifest, step: int | None) -> Iterator[Finding]:
    if manifest.origin is Origin.SAVE and step is not None and step != manifest.step:
        yield _mismatch(
            expected=f"step {step}",
            observed=f"step {manifest.step}",
            message=f"the folder is called after step {step}, and its manifest is of step {manifest.step}",
        )

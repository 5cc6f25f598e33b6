"""DCP: a manifest beside the shards that is broken, or of another save."""

from collections.abc import Callable
from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Expectation, Scene, invalid, unknown
from ckptguard.testing.save_manifest import leave_manifest
from ckptguard.testing.saves import BASE, BASE_NEWER


def _cut(scene: Scene) -> Damage:
    leave_manifest(scene.folder, format_name="dcp")
    return edits.truncate_by(scene.folder, MANIFEST_NAME, removed_bytes=40)


def _of_other_save(scene: Scene) -> Damage:
    """The manifest is that of the next save, whose files never arrived."""
    newer = edits.copy_checkpoint(scene.saves / BASE_NEWER, scene.folder.parent / "newer")
    manifest = leave_manifest(newer, format_name="dcp")
    (scene.folder / MANIFEST_NAME).write_bytes(manifest.read_bytes())
    return Damage(kind="manifest_of_other_save", file=MANIFEST_NAME)


def _other_save_id(scene: Scene) -> Damage:
    """Every checksum is right, and the manifest says that another save wrote them."""
    leave_manifest(scene.folder, format_name="dcp", save_id="00000000-0000-4000-8000-000000000000")
    return Damage(kind="manifest_other_save_id", file=MANIFEST_NAME)


def _case(name: str, arrange: Callable[[Scene], Damage], expected: Expectation) -> Case:
    return Case(name=f"dcp/{name}", source="design 6", base=BASE, arrange=arrange, expected=expected)


MANIFESTS: Final[tuple[Case, ...]] = (
    _case("manifest_cut", _cut, invalid(Code.MANIFEST_UNREADABLE, file=MANIFEST_NAME)),
    _case("manifest_of_other_save", _of_other_save, invalid(Code.CHECKSUM_MISMATCH, file="__0_0.distcp")),
    _case("manifest_other_save_id", _other_save_id, unknown(Code.MANIFEST_MISMATCH)),
)

"""A save-time manifest beside a finished save, as a guarded writer leaves it."""

from pathlib import Path

from ckptguard.formats.manifest_json import to_json
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.testing.aim import find_layouts
from ckptguard.testing.edits import COMMITTED_AT_S, set_time
from ckptguard.testing.manifests import manifest_of


def leave_manifest(folder: Path, *, format_name: str, save_id: str | None = None) -> Path:
    """Write a manifest of every file in the folder, with origin `save` and checksums from memory.

    Args:
        folder: The finished save.
        format_name: As in the manifest.
        save_id: By default the one that the metadata names.

    Returns:
        Its path; its time is that of the commit.
    """
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST_NAME
    }
    manifest = manifest_of(contents, save_id=save_id or _own_save_id(folder), format_name=format_name)
    path = folder / MANIFEST_NAME
    path.write_bytes(to_json(manifest))
    set_time(path, COMMITTED_AT_S)
    return path


def _own_save_id(folder: Path) -> str:
    return next((layout.save_id for layout in find_layouts(folder) if layout.save_id), "kit-save")

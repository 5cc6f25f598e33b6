"""A save-time manifest beside a finished save, as a guarded writer leaves it."""

from pathlib import Path

from ckptguard.formats.manifest_json import to_json
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.testing.aim import find_layouts
from ckptguard.testing.edits import COMMITTED_AT_S, set_time
from ckptguard.testing.manifests import manifest_of


def leave_manifest(folder: Path, *, format_name: str) -> Path:
    """Write a manifest of every file in the folder, with origin `save` and checksums from memory.

    Returns:
        Its path; its time is that of the commit.
    """
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST_NAME
    }
    save_ids = [layout.save_id for layout in find_layouts(folder) if layout.save_id]
    manifest = manifest_of(contents, save_id=next(iter(save_ids), "kit-save"), format_name=format_name)
    path = folder / MANIFEST_NAME
    path.write_bytes(to_json(manifest))
    set_time(path, COMMITTED_AT_S)
    return path

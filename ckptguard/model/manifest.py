"""The manifest, version 1: what a checkpoint is held against (docs/manifest.md).

Every constructor raises `ManifestFormatError` with all of its problems, so that a
value that exists obeys the laws. Fields of later versions are kept in
`unknown_fields` and written back as they were.
"""

import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.manifest_entries import (
    ChecksumSource,
    ManifestFile,
    ManifestItem,
    ManifestProbe,
    MeshDimension,
    Origin,
    Role,
    Writer,
    raise_problems,
    unknown_field_problems,
)
from ckptguard.model.manifest_laws import (
    escape_pointer,
    integer_problems,
    is_manifest_path,
    json_problems,
    label_problems,
    path_problems,
    repetition_problems,
    time_problems,
)

__all__ = [
    "DERIVED_SAVE_ID",
    "MANIFEST_NAME",
    "MANIFEST_VERSION",
    "UNKNOWN_FORMAT",
    "ChecksumSource",
    "Manifest",
    "ManifestFile",
    "ManifestItem",
    "ManifestProbe",
    "MeshDimension",
    "Origin",
    "Role",
    "Writer",
    "default_save_id",
    "fold_path",
    "identity",
    "is_manifest_path",
    "portability_notes",
    "rank_manifest_name",
]

MANIFEST_VERSION: Final = 1
MANIFEST_NAME: Final = "ckptguard.manifest.json"
"""The last file that a writer leaves in its part."""
UNKNOWN_FORMAT: Final = "unknown"
"""Format of a manifest made from a folder that no adapter recognised."""
DERIVED_SAVE_ID: Final = "c-"
"""How a save id begins that was derived from the identity, not given by the writer."""


def rank_manifest_name(rank: int) -> str:
    """Return the manifest's name where each rank commits on its own (`__R.metadata`)."""
    return f"__{rank}.{MANIFEST_NAME}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one save, or one part of it, consists of.

    Files and items are sorted on construction: their order means nothing.

    Args:
        run: Training lineage.
        step: Optimizer step.
        save_id: Tells two saves of one step apart.
        created_at: When the save was committed, or read back; aware UTC.
        origin: Who made this.
        format: Adapter's name, e.g. `dcp`; several joined by `+`; `unknown`.
        writer: Versions.
        files: Every stored file of the save except manifests; at least one.
        world_size: Ranks that saved; None only where read back.
        part: Folder of this part in the checkpoint; None where the save has one part.
        parts: All parts of the checkpoint, this one too.
        mesh: Dimensions of the device mesh, outermost first.
        items: Extents with checksums of their own; usually left out.
        fingerprints: Name to text, e.g. `config` to `sha256:…`.
        probe: For check `probe`.
        annotations: Anything that is JSON; never interpreted.
        unknown_fields: Kept as read.
    """

    run: str
    step: int
    save_id: str
    created_at: datetime
    origin: Origin
    format: str
    writer: Writer
    files: tuple[ManifestFile, ...]
    world_size: int | None = None
    part: str | None = None
    parts: tuple[str, ...] = ()
    mesh: tuple[MeshDimension, ...] = ()
    items: tuple[ManifestItem, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    probe: ManifestProbe | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort, then raise every problem."""
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.path)))
        object.__setattr__(self, "items", tuple(sorted(self.items, key=_item_key)))
        laws: tuple[Callable[[Manifest], Iterable[str]], ...] = (
            _name_problems,
            _file_problems,
            _part_problems,
            _item_problems,
            _free_value_problems,
        )
        raise_problems([problem for law in laws for problem in law(self)])


def identity(manifest: Manifest) -> Checksum:
    """Return the SHA-256 of the RFC 8785 form of what the manifest says about bytes.

    Enter: `manifest_version`, `format`; path, length and checksum of each file; every
    field of each item. Everything else says who looked and when, and stays out, so that
    the same bytes have the same identity whoever registers them.
    """
    form = {
        "manifest_version": MANIFEST_VERSION,
        "format": manifest.format,
        "files": [
            {"path": file.path, "length_bytes": file.length_bytes, "checksum": str(file.checksum)}
            for file in manifest.files
        ],
        "items": [_item_form(item) for item in manifest.items],
    }
    # Equal to RFC 8785: ASCII keys, strings without surrogates and integers below 2**53 are all
    # there is. The tests hold it against the package rfc8785, which takes ten times as long.
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return Checksum(algorithm=Algorithm.SHA256, hex_digits=hashlib.sha256(text.encode()).hexdigest())


def default_save_id(identity: Checksum) -> str:
    """Return the save id of a save that its writer gave none."""
    return f"{DERIVED_SAVE_ID}{identity.hex_digits[:32]}"


def portability_notes(manifest: Manifest) -> tuple[str, ...]:
    """Say which paths would fall together where case or Unicode form does not count.

    Such a manifest is lawful; a copy to such a file system would lose files.
    """
    listed = [file.path for file in manifest.files]
    folded = _fold_paths(listed)
    if len(set(folded)) == len(folded):
        return ()
    groups: dict[str, list[str]] = {}
    for path, form in zip(listed, folded, strict=True):
        groups.setdefault(form, []).append(path)
    return tuple(
        f"differ in case or Unicode form only: {', '.join(map(repr, paths))}"
        for paths in groups.values()
        if len(paths) > 1
    )


def fold_path(path: str) -> str:
    """Return the form in which paths that differ in case or Unicode form only are equal."""
    return path.casefold() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def _fold_paths(paths: list[str]) -> list[str]:
    together = "\n".join(paths)  # which no path holds; of 100,000 files a tenth of the time
    return together.casefold().split("\n") if together.isascii() else list(map(fold_path, paths))


def _item_key(item: ManifestItem) -> tuple[str, int, str, tuple[int, ...], int]:
    return item.file, item.offset, item.fqn, item.offsets or (), item.length_bytes


def _item_form(item: ManifestItem) -> dict[str, Any]:
    form: dict[str, Any] = {
        "fqn": item.fqn,
        "file": item.file,
        "offset": item.offset,
        "length_bytes": item.length_bytes,
        "checksum": str(item.checksum),
    }
    if item.offsets is not None:
        form |= {"offsets": list(item.offsets), "sizes": list(item.sizes or ()), "dtype": item.dtype}
    return form


def _name_problems(manifest: Manifest) -> Iterator[str]:
    yield from label_problems(manifest.run, at="/run")
    yield from integer_problems(manifest.step, at="/step")
    yield from label_problems(manifest.save_id, at="/save_id")
    yield from label_problems(manifest.format, at="/format")
    yield from time_problems(manifest.created_at, at="/created_at")
    if manifest.world_size is not None:
        yield from integer_problems(manifest.world_size, at="/world_size", minimum=1)
    elif manifest.origin is Origin.SAVE:
        yield "/world_size: missing, though the writer knows it"


def _file_problems(manifest: Manifest) -> Iterator[str]:
    if not manifest.files:
        yield "/files: empty"
    yield from repetition_problems((file.path for file in manifest.files), at="/files")
    if manifest.origin is Origin.READ_BACK:
        paths = [file.path for file in manifest.files if file.checksum_source is ChecksumSource.MEMORY]
        if paths:
            yield f"/files: read back, yet {len(paths)} checksums are from memory, of {paths[0]!r} first"


def _part_problems(manifest: Manifest) -> Iterator[str]:
    for index, part in enumerate(manifest.parts):
        yield from path_problems(part, at=f"/parts/{index}")
    yield from repetition_problems(manifest.parts, at="/parts")
    if manifest.part is not None:
        yield from path_problems(manifest.part, at="/part")
    if manifest.parts and manifest.part not in manifest.parts:
        yield f"/part: not one of parts: {manifest.part!r}"


def _item_problems(manifest: Manifest) -> Iterator[str]:
    lengths = {file.path: file.length_bytes for file in manifest.files} if manifest.items else {}
    previous = None
    for item in manifest.items:
        if item.file not in lengths:
            yield f"/items: {item.fqn!r} lies in a file that is not listed: {item.file!r}"
        elif item.offset + item.length_bytes > lengths[item.file]:
            yield f"/items: {item.fqn!r} ends beyond {item.file!r}"
        if _item_key(item) == previous:
            yield f"/items: listed twice: {item.fqn!r} at {item.file!r} offset {item.offset}"
        previous = _item_key(item)


def _free_value_problems(manifest: Manifest) -> Iterator[str]:
    for name, text in manifest.fingerprints.items():
        at = f"/fingerprints/{escape_pointer(name)}"
        yield from label_problems(name, at=at)
        yield from label_problems(text, at=at)
    yield from json_problems(dict(manifest.annotations), at="/annotations")
    yield from unknown_field_problems(manifest, reserved="manifest_version")

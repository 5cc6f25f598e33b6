"""Manifest v1 to and from JSON (docs/manifest.md)."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from ckptguard.errors import LimitExceededError, ManifestFormatError, UnsupportedFormatError
from ckptguard.formats.manifest_fields import read_manifest
from ckptguard.formats.strict_json import JsonLimits, StrictJson, parse_strict_json
from ckptguard.model.manifest import (
    MANIFEST_VERSION,
    Manifest,
    ManifestFile,
    ManifestItem,
    ManifestProbe,
    MeshDimension,
    Writer,
)
from ckptguard.model.policy import MIB

SCHEMA_NAME: Final = "manifest-v1.schema.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestLimits:
    """Bounds on a manifest from an untrusted source; beyond one: `limit_exceeded`.

    Args:
        max_bytes: Length of the text.
        max_depth: Arrays and objects inside each other.
        max_values: JSON values, all together.
        max_files: Files listed.
        max_items: Items listed.
        max_problems: Problems told one by one; the rest is counted.
    """

    max_bytes: int = 256 * MIB
    max_depth: int = 32
    max_values: int = 8_000_000
    max_files: int = 1_000_000
    max_items: int = 1_000_000
    max_problems: int = 100


def parse_manifest(data: bytes, *, limits: ManifestLimits | None = None) -> Manifest:
    """Parse a manifest; accept nothing that it would have to repair.

    Raises:
        ManifestFormatError: With every problem, each with its JSON pointer.
        UnsupportedFormatError: Another `manifest_version`: its rules are not ours.
        LimitExceededError: Beyond `limits`.

    Cost: 100,000 files in about a second and 150 MiB.
    """
    limits = limits or ManifestLimits()
    parsed = parse_strict_json(
        data,
        JsonLimits(max_bytes=limits.max_bytes, max_depth=limits.max_depth, max_values=limits.max_values),
    )
    return manifest_of(parsed, limits=limits)


def manifest_of(parsed: StrictJson, *, limits: ManifestLimits) -> Manifest:
    """Build a manifest from JSON that was parsed already, e.g. as a member of something larger.

    Args:
        parsed: The manifest's own value; problems with pointers relative to it. Its objects are emptied.
        limits: Of which `max_files`, `max_items` and `max_problems` are held here.

    Raises:
        ManifestFormatError: With every problem, each with its JSON pointer.
        UnsupportedFormatError: Another `manifest_version`: its rules are not ours.
        LimitExceededError: More files or items.
    """
    _require_our_version(parsed)
    _require_counts(parsed.value, limits)
    manifest, problems = read_manifest(parsed.value, known_problems=parsed.problems)
    if manifest is None:
        raise ManifestFormatError(bounded_problems(problems, limits.max_problems))
    return manifest


def _require_our_version(parsed: StrictJson) -> None:
    if not isinstance(parsed.value, dict):
        raise ManifestFormatError([": not a JSON object"])
    version = parsed.value.get("manifest_version")
    if type(version) is int and version > MANIFEST_VERSION:
        msg = f"manifest_version {version}; this version of ckptguard reads {MANIFEST_VERSION}"
        raise UnsupportedFormatError(msg)


def _require_counts(members: dict[str, Any], limits: ManifestLimits) -> None:
    for name, limit in (("files", limits.max_files), ("items", limits.max_items)):
        entries = members.get(name)
        if isinstance(entries, list) and len(entries) > limit:
            msg = f"manifest lists {len(entries)} {name}, limit {limit}"
            raise LimitExceededError(msg)


def bounded_problems(problems: Sequence[str], limit: int) -> list[str]:
    """Keep the first problems and say how many more there are."""
    more = len(problems) - limit
    return [*problems[:limit], *([f"and {more} more problems"] if more > 0 else [])]


def to_json(manifest: Manifest) -> bytes:
    """Return the one text of a manifest: keys and files sorted, one file a line, newline at the end.

    Guarantees: `parse_manifest(to_json(manifest)) == manifest`, within limits; equal manifests give
    equal bytes.
    """
    members = sorted(_members(manifest).items())
    body = ",\n".join(f"{_compact(key)}:{_lines(key, value)}" for key, value in members)
    return f"{{\n{body}\n}}\n".encode()


def _lines(key: str, value: Any) -> str:  # noqa: ANN401 - a JSON value
    if key not in ("files", "items") or not value:
        return _compact(value)
    return "[\n" + ",\n".join(map(_compact, value)) + "\n]"


def _compact(value: Any) -> str:  # noqa: ANN401 - a JSON value
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def _members(manifest: Manifest) -> dict[str, Any]:
    entries: dict[str, Any] = {"files": [file_members(file) for file in manifest.files]}
    if manifest.items:
        entries["items"] = [item_members(item) for item in manifest.items]
    return header_members(manifest) | entries


def header_members(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON members of a manifest but `files` and `items`: few, whatever the save's size."""
    required = {
        "manifest_version": MANIFEST_VERSION,
        "run": manifest.run,
        "step": manifest.step,
        "save_id": manifest.save_id,
        "created_at": f"{manifest.created_at.replace(tzinfo=None).isoformat()}Z",
        "origin": manifest.origin.value,
        "format": manifest.format,
        "writer": _writer_members(manifest.writer),
    }
    return {**required, **dict(_optional_members(manifest)), **manifest.unknown_fields}


def _optional_members(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    if manifest.world_size is not None:
        yield "world_size", manifest.world_size
    if manifest.part is not None:
        yield "part", manifest.part
    if manifest.parts:
        yield "parts", list(manifest.parts)
    if manifest.mesh:
        yield "mesh", [_mesh_members(dimension) for dimension in manifest.mesh]
    if manifest.fingerprints:
        yield "fingerprints", dict(manifest.fingerprints)
    if manifest.probe is not None:
        yield "probe", _probe_members(manifest.probe)
    if manifest.annotations:
        yield "annotations", dict(manifest.annotations)


def _writer_members(writer: Writer) -> dict[str, Any]:
    versions = {"ckptguard": writer.ckptguard, "torch": writer.torch, "python": writer.python}
    return {**{name: text for name, text in versions.items() if text is not None}, **writer.unknown_fields}


def _mesh_members(dimension: MeshDimension) -> dict[str, Any]:
    return {"name": dimension.name, "size": dimension.size, **dimension.unknown_fields}


def file_members(file: ManifestFile) -> dict[str, Any]:
    """Return the JSON members of one entry of `files`."""
    return {
        "path": file.path,
        "role": file.role.value,
        "length_bytes": file.length_bytes,
        "checksum": str(file.checksum),
        "checksum_source": file.checksum_source.value,
        **file.unknown_fields,
    }


def item_members(item: ManifestItem) -> dict[str, Any]:
    """Return the JSON members of one entry of `items`."""
    sliced: dict[str, Any] = {}
    if item.offsets is not None:
        sliced = {"offsets": list(item.offsets), "sizes": list(item.sizes or ()), "dtype": item.dtype}
    return {
        "fqn": item.fqn,
        "file": item.file,
        "offset": item.offset,
        "length_bytes": item.length_bytes,
        "checksum": str(item.checksum),
        **sliced,
        **item.unknown_fields,
    }


def _probe_members(probe: ManifestProbe) -> dict[str, Any]:
    return {
        "entrypoint": probe.entrypoint,
        "value": probe.value,
        "tolerance": probe.tolerance,
        **probe.unknown_fields,
    }


@cache
def manifest_schema_text() -> str:
    """Return the JSON Schema (draft 2020-12) of manifest v1, as published in docs/schemas.

    What a schema cannot say (paths listed twice, items inside their file, real dates) is in
    docs/manifest.md; `parse_manifest` holds all of it.
    """
    return resources.files("ckptguard.formats").joinpath(SCHEMA_NAME).read_text("utf-8")

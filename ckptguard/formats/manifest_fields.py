"""From JSON values to a manifest: types here, laws in the constructors, every problem of both."""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from ckptguard.errors import ManifestFormatError
from ckptguard.model.checksum import parse_checksum
from ckptguard.model.json_fields import NO_CHECKSUM, Fields, Problems, TooManyProblemsError
from ckptguard.model.manifest import (
    MANIFEST_VERSION,
    ChecksumSource,
    Manifest,
    ManifestFile,
    ManifestItem,
    ManifestProbe,
    MeshDimension,
    Origin,
    Role,
    Writer,
)

_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_WRITER: Final = Writer(ckptguard="?")
_ROLES: Final = {role.value: role for role in Role}
_SOURCES: Final = {source.value: source for source in ChecksumSource}
_NUM_FILE_FIELDS: Final = 5


def read_manifest(
    members: dict[str, Any], *, known_problems: tuple[str, ...] = ()
) -> tuple[Manifest | None, list[str]]:
    """Build a manifest from the members of its JSON object.

    Args:
        members: As parsed.
        known_problems: What parsing the JSON already found.

    Returns:
        The manifest and no problem, or None and every problem. Items are held against files,
        and a part against the parts, only where both are right in themselves.
    """
    problems = Problems(known_problems)
    with suppress(TooManyProblemsError):
        return _read(Fields(dict(members), "", problems), problems)
    return None, problems.lines


def _read(top: Fields, problems: Problems) -> tuple[Manifest | None, list[str]]:
    version = top.integer("manifest_version", instead=MANIFEST_VERSION)
    if version != MANIFEST_VERSION:
        problems.note("/manifest_version", f"expected {MANIFEST_VERSION}, found {version}")
    origin = top.choice("origin", Origin, instead=Origin.SAVE)
    files, items = _entries(top)
    part, parts = _part(top)
    manifest = problems.build(
        Manifest,
        "",
        run=top.text("run"),
        step=top.integer("step"),
        save_id=top.text("save_id"),
        created_at=_time(top, "created_at"),
        origin=origin,
        format=top.text("format"),
        writer=_writer(top.fields_of("writer")),
        files=files,
        world_size=top.integer("world_size", instead=1) if top.has("world_size") else None,
        part=part,
        parts=parts,
        mesh=tuple(map(_mesh_dimension, _if_there(top, "mesh"))),
        items=items,
        fingerprints=top.text_by_name("fingerprints") if top.has("fingerprints") else {},
        probe=_probe(top.fields_of("probe")) if top.has("probe") else None,
        annotations=top.fields_of("annotations").members if top.has("annotations") else {},
        unknown_fields=top.members,
    )
    return (None, problems.lines) if problems.lines else (manifest, [])


def _entries(top: Fields) -> tuple[tuple[ManifestFile, ...], tuple[ManifestItem, ...]]:
    num_before = len(top.problems.lines)
    files = tuple(
        _plain_file(value) or _file(top.element(f"files/{index}", value))
        for index, value in enumerate(top.array("files"))
    )
    items = tuple(item for item in map(_item, _if_there(top, "items")) if item is not None)
    if len(top.problems.lines) == num_before:
        return files, items if files else ()
    return files or (_stand_in("?"),), ()


def _if_there(top: Fields, key: str) -> Iterator[Fields]:
    return top.objects(key) if top.has(key) else iter(())


def _part(top: Fields) -> tuple[str | None, tuple[str, ...]]:
    num_before = len(top.problems.lines)
    part = top.text("part") if top.has("part") else None
    parts = top.texts("parts") if top.has("parts") else ()
    return (part, parts) if len(top.problems.lines) == num_before else (None, ())


def _time(top: Fields, key: str) -> datetime:
    text = top.text(key, instead="1970-01-01T00:00:00Z")
    try:
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:  # the shape of a date, and no date: 2026-02-30
        pass
    top.problems.note(f"{top.at}/{key}", f"not a UTC time like 2026-11-29T20:33:00Z: {text[:40]!r}")
    return _NO_TIME


def _plain_file(members: Any) -> ManifestFile | None:  # noqa: ANN401 - a JSON value
    """Build a file in which nothing is wrong, unknown or missing: nearly every one, in half the time.

    None says no more than that the long way has to be gone.
    """
    try:
        return (
            ManifestFile(
                path=members["path"],
                role=_ROLES[members["role"]],
                length_bytes=members["length_bytes"],
                checksum=parse_checksum(members["checksum"]),
                checksum_source=_SOURCES[members["checksum_source"]],
            )
            if len(members) == _NUM_FILE_FIELDS
            else None
        )
    except (LookupError, TypeError, ValueError, ManifestFormatError):
        return None


def _file(fields: Fields) -> ManifestFile:
    path = fields.text("path", instead=f"?{fields.at}")
    file = fields.problems.build(
        ManifestFile,
        fields.at,
        path=path,
        role=fields.choice("role", Role, instead=Role.SIDECAR),
        length_bytes=fields.integer("length_bytes"),
        checksum=fields.checksum("checksum"),
        checksum_source=fields.choice("checksum_source", ChecksumSource, instead=ChecksumSource.STORAGE),
        unknown_fields=fields.members,
    )
    return file or _stand_in_for(path) or _stand_in(f"?{fields.at}")


def _stand_in_for(path: str) -> ManifestFile | None:
    """Keep at least the path, so that one listed twice is still found."""
    return Problems().build(_stand_in, "", path=path)


def _stand_in(path: str) -> ManifestFile:
    return ManifestFile(
        path=path,
        role=Role.SIDECAR,
        length_bytes=0,
        checksum=NO_CHECKSUM,
        checksum_source=ChecksumSource.STORAGE,
    )


def _item(fields: Fields) -> ManifestItem | None:
    return fields.problems.build(
        ManifestItem,
        fields.at,
        fqn=fields.text("fqn"),
        file=fields.text("file"),
        offset=fields.integer("offset"),
        length_bytes=fields.integer("length_bytes"),
        checksum=fields.checksum("checksum"),
        offsets=fields.integers("offsets") if fields.has("offsets") else None,
        sizes=fields.integers("sizes") if fields.has("sizes") else None,
        dtype=fields.text("dtype") if fields.has("dtype") else None,
        unknown_fields=fields.members,
    )


def _writer(fields: Fields) -> Writer:
    writer = fields.problems.build(
        Writer,
        fields.at,
        ckptguard=fields.text("ckptguard"),
        torch=fields.text("torch") if fields.has("torch") else None,
        python=fields.text("python") if fields.has("python") else None,
        unknown_fields=fields.members,
    )
    return writer or _NO_WRITER


def _mesh_dimension(fields: Fields) -> MeshDimension:
    dimension = fields.problems.build(
        MeshDimension,
        fields.at,
        name=fields.text("name"),
        size=fields.integer("size", instead=1),
        unknown_fields=fields.members,
    )
    return dimension or MeshDimension(name="?", size=1)


def _probe(fields: Fields) -> ManifestProbe | None:
    return fields.problems.build(
        ManifestProbe,
        fields.at,
        entrypoint=fields.text("entrypoint"),
        value=fields.number("value"),
        tolerance=fields.number("tolerance"),
        unknown_fields=fields.members,
    )

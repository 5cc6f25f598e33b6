"""A zoo of manifests: lawful ones, and every way to break one, each with its pointer."""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import xxhash

from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.manifest import ChecksumSource, Manifest, ManifestFile, Origin, Role, Writer

_LONG_NAME: Final = "n" * 256
Edit = Callable[[dict[str, Any]], object]


def checksum_of(data: bytes) -> Checksum:
    """Return the XXH3-128 of some bytes."""
    return Checksum(algorithm=Algorithm.XXH3_128, hex_digits=xxhash.xxh3_128_hexdigest(data))


def manifest_of(
    contents: Mapping[str, bytes],
    *,
    origin: Origin = Origin.SAVE,
    source: ChecksumSource | None = None,
    save_id: str = "save-1",
    format_name: str = "dcp",
) -> Manifest:
    """Return a manifest of some files, as a writer or a reader of them would make it.

    Args:
        contents: Bytes by path; names decide the roles.
        origin: Who makes it.
        source: Where checksums were taken; by default what goes with the origin.
        save_id: As given.
        format_name: As given.
    """
    usual = ChecksumSource.MEMORY if origin is Origin.SAVE else ChecksumSource.STORAGE
    return Manifest(
        run="kit",
        step=7,
        save_id=save_id,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        origin=origin,
        format=format_name,
        writer=Writer(ckptguard="0.1.0", torch="2.13.0", python="3.11.7"),
        world_size=4,
        files=tuple(
            ManifestFile(
                path=path,
                role=_role(path),
                length_bytes=len(data),
                checksum=checksum_of(data),
                checksum_source=source or usual,
            )
            for path, data in contents.items()
        ),
    )


def _role(path: str) -> Role:
    if path.endswith(".metadata"):
        return Role.METADATA
    return Role.SHARD if path.endswith((".distcp", ".safetensors")) else Role.SIDECAR


def full_members() -> dict[str, Any]:
    """Return the JSON members of a lawful manifest that uses every field, unknown ones too."""
    return copy.deepcopy(_FULL)


def minimal_members() -> dict[str, Any]:
    """Return the JSON members of a lawful manifest with nothing optional."""
    optional = ("part", "parts", "mesh", "items", "fingerprints", "probe", "annotations", "x_unknown")
    return {key: value for key, value in full_members().items() if key not in optional}


_FULL: Final[dict[str, Any]] = {
    "manifest_version": 1,
    "run": "llama 8b/α",  # noqa: RUF001 - names are not only Latin
    "step": 1200,
    "save_id": "3f0c8f3e-6c0f-4b0e-9d53-6f6c2f1c2a77",
    "created_at": "2026-11-29T20:33:00.250000Z",
    "origin": "save",
    "format": "dcp",
    "part": "pytorch_model_fsdp_0",
    "parts": ["pytorch_model_fsdp_0", "optimizer_0"],
    "writer": {"torch": "2.13.0", "ckptguard": "0.1.0", "python": "3.11.7", "x_unknown": [1, 2.5]},
    "world_size": 4,
    "mesh": [{"name": "dp_shard", "size": 2}, {"name": "tp", "size": 2, "x_unknown": None}],
    "files": [
        {
            "path": "__0_0.distcp",
            "role": "shard",
            "length_bytes": 4096,
            "checksum": "xxh3-128:99aa06d3014798d86001c324468d497f",
            "checksum_source": "memory",
        },
        {
            "path": ".metadata",
            "role": "metadata",
            "length_bytes": 986,
            "checksum": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "checksum_source": "memory",
        },
        {
            "path": "état/rng ☃.pth",
            "role": "sidecar",
            "length_bytes": 0,
            "checksum": "crc64nvme:0000000000000000",
            "checksum_source": "storage",
            "x_unknown": {"deep": [True, None, -7, "\x7f"]},
        },
    ],
    "items": [
        {
            "fqn": "model.w",
            "offsets": [16, 0],
            "sizes": [16, 32],
            "dtype": "bfloat16",
            "file": "__0_0.distcp",
            "offset": 0,
            "length_bytes": 2048,
            "checksum": "xxh3-128:99aa06d3014798d86001c324468d497f",
        },
        {
            "fqn": "train.note",
            "file": "__0_0.distcp",
            "offset": 2048,
            "length_bytes": 2048,
            "checksum": "xxh3-128:99aa06d3014798d86001c324468d497f",
        },
    ],
    "fingerprints": {"config": "sha256:00", "tokenizer": "v3"},
    "probe": {"entrypoint": "my.module:loss", "value": 2.25, "tolerance": 0},
    "annotations": {"note": "before the learning rate drop", "numbers": [0.1, 1e300, -3]},
    "x_unknown": {"kept": ["as", "it", "was"]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BadManifest:
    """One way to break a lawful manifest.

    Args:
        name: Of the case.
        edit: Breaks the full members, in place.
        at: Pointer of the problem that must be listed.
        is_seen_by_schema: False where a JSON Schema cannot express the rule.
    """

    name: str
    edit: Edit
    at: str
    is_seen_by_schema: bool = True

    def members(self) -> dict[str, Any]:
        """Return the broken members."""
        members = full_members()
        self.edit(members)
        return members

    def text(self) -> bytes:
        """Return the broken manifest."""
        return json.dumps(self.members()).encode()


def _set(*keys: str | int, to: object) -> Edit:
    def edit(members: dict[str, Any]) -> None:
        holder: Any = members
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = to

    return edit


def _drop(*keys: str | int) -> Edit:
    def edit(members: dict[str, Any]) -> None:
        holder: Any = members
        for key in keys[:-1]:
            holder = holder[key]
        del holder[keys[-1]]

    return edit


def _both(one: Edit, other: Edit) -> Edit:
    return lambda members: (one(members), other(members))


def _wrong(*keys: str | int, to: object, name: str, is_seen_by_schema: bool = True) -> BadManifest:
    at = "".join(f"/{key}" for key in keys)
    return BadManifest(
        name=f"{at[1:]} {name}", edit=_set(*keys, to=to), at=at, is_seen_by_schema=is_seen_by_schema
    )


_BAD_PATHS: Final = {
    "empty": "",
    "absolute": "/etc/passwd",
    "up": "../x",
    "up inside": "a/../b",
    "dot": "./a",
    "only dots": "..",
    "empty segment": "a//b",
    "trailing slash": "a/",
    "backslash": "a\\b",
    "drive": "C:/x",
    "null": "a\x00b",
    "newline": "a\n",
    "delete": "a\x7f",
    "itself": "ckptguard.manifest.json",
    "a rank's manifest": "__3.ckptguard.manifest.json",
    "too long": "/".join(["n" * 200] * 6),
}
_REQUIRED: Final = ("run", "step", "save_id", "created_at", "origin", "format", "writer", "files")
_REQUIRED_OF_FILE: Final = ("path", "role", "length_bytes", "checksum", "checksum_source")
_REQUIRED_OF_ITEM: Final = ("fqn", "file", "offset", "length_bytes", "checksum")
_WRONG_TYPES: Final[tuple[tuple[str, object], ...]] = (
    ("run", 7),
    ("run", None),
    ("step", "7"),
    ("step", True),
    ("step", 7.5),
    ("step", -1),
    ("step", 2**53),
    ("world_size", 0),
    ("world_size", None),
    ("created_at", 1),
    ("origin", "guess"),
    ("writer", []),
    ("files", {}),
    ("items", {}),
    ("mesh", {}),
    ("part", 1),
    ("parts", "a"),
    ("fingerprints", []),
    ("probe", []),
    ("annotations", []),
)

BAD_MANIFESTS: Final = (
    BadManifest(name="no version", edit=_drop("manifest_version"), at="/manifest_version"),
    _wrong("manifest_version", to=0, name="zero"),
    _wrong("manifest_version", to="1", name="text"),
    *(BadManifest(name=f"no {key}", edit=_drop(key), at=f"/{key}") for key in _REQUIRED),
    *(_wrong(key, to=value, name=f"is {value!r}") for key, value in _WRONG_TYPES),
    BadManifest(name="no world size at save", edit=_drop("world_size"), at="/world_size"),
    _wrong("run", to="", name="empty"),
    _wrong("run", to="a\nb", name="two lines"),
    _wrong("save_id", to="x" * 257, name="too long"),
    _wrong("created_at", to="2026-11-29 20:33:00", name="no zone"),
    _wrong("created_at", to="2026-11-29T20:33:00+01:00", name="not UTC"),
    _wrong("created_at", to="2026-02-30T00:00:00Z", name="no such day", is_seen_by_schema=False),
    _wrong("writer", "torch", to=2.13, name="a number"),
    BadManifest(name="writer without ckptguard", edit=_drop("writer", "ckptguard"), at="/writer/ckptguard"),
    _wrong("parts", 1, to="../x", name="escapes"),
    BadManifest(name="part twice", edit=_set("parts", to=["pytorch_model_fsdp_0"] * 2), at="/parts"),
    _wrong("part", to="other", name="not one of parts", is_seen_by_schema=False),
    BadManifest(name="parts without part", edit=_drop("part"), at="/part"),
    _wrong("mesh", 0, "size", to=0, name="zero"),
    _wrong("mesh", 0, to="dp", name="text"),
    _wrong("fingerprints", "config", to=1, name="a number"),
    _wrong("probe", "value", to="2", name="text"),
    _wrong("probe", "tolerance", to=-1, name="negative"),
    _wrong("files", to=[], name="none"),
    *(_wrong("files", 0, "path", to=path, name=name) for name, path in _BAD_PATHS.items()),
    _wrong("files", 0, "path", to=_LONG_NAME, name="name too long", is_seen_by_schema=False),
    _wrong("files", 0, "path", to="\ud800", name="surrogate", is_seen_by_schema=False),
    *(
        BadManifest(name=f"file without {key}", edit=_drop("files", 0, key), at=f"/files/0/{key}")
        for key in _REQUIRED_OF_FILE
    ),
    _wrong("files", 1, to=None, name="null"),
    _wrong("files", 0, "role", to="weights", name="unknown"),
    _wrong("files", 0, "length_bytes", to=-1, name="negative"),
    _wrong("files", 0, "length_bytes", to=True, name="a bool"),
    _wrong("files", 0, "length_bytes", to=4096.0, name="a float", is_seen_by_schema=False),
    _wrong("files", 0, "checksum", to="99aa06d3014798d86001c324468d497f", name="without algorithm"),
    _wrong("files", 0, "checksum", to="md5:d41d8cd98f00b204e9800998ecf8427e", name="of md5"),
    _wrong("files", 0, "checksum", to="xxh3-128:99", name="cut"),
    _wrong("files", 0, "checksum", to="xxh3-128:" + "A" * 32, name="in capitals"),
    _wrong("files", 0, "checksum_source", to="disk", name="unknown"),
    BadManifest(
        name="file twice",
        edit=lambda members: members["files"].append(dict(members["files"][0])),
        at="/files",
        is_seen_by_schema=False,
    ),
    BadManifest(name="read back from memory", edit=_set("origin", to="read_back"), at="/files"),
    *(
        BadManifest(name=f"item without {key}", edit=_drop("items", 0, key), at=f"/items/0/{key}")
        for key in _REQUIRED_OF_ITEM
    ),
    BadManifest(name="item without sizes", edit=_drop("items", 0, "sizes"), at="/items/0/sizes"),
    BadManifest(
        name="item of other rank",
        edit=_set("items", 0, "sizes", to=[16]),
        at="/items/0/sizes",
        is_seen_by_schema=False,
    ),
    _wrong("items", 0, "offsets", 1, to=-1, name="negative"),
    BadManifest(
        name="item in no file",
        edit=_set("items", 0, "file", to="other"),
        at="/items",
        is_seen_by_schema=False,
    ),
    BadManifest(
        name="item beyond its file",
        edit=_set("items", 1, "length_bytes", to=2049),
        at="/items",
        is_seen_by_schema=False,
    ),
    BadManifest(
        name="item twice",
        edit=lambda members: members["items"].append(dict(members["items"][0])),
        at="/items",
        is_seen_by_schema=False,
    ),
    _wrong("annotations", "note", to="\udfff", name="surrogate", is_seen_by_schema=False),
    _wrong("x_unknown", to=2**60, name="inexact integer", is_seen_by_schema=False),
)
"""Each breaks exactly one rule of the full manifest."""

GOOD_MANIFESTS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "full": full_members,
    "minimal": minimal_members,
    "read back without world size": lambda: _edited(
        _both(
            _both(_set("origin", to="read_back"), _drop("world_size")),
            lambda members: [file.update(checksum_source="storage") for file in members["files"]],
        )
    ),
    "unknown fields named like ours elsewhere": lambda: _edited(
        _both(
            _set("files", 0, "manifest_version", to=9), _set("writer", "unknown_fields", to={"files": [1.5]})
        )
    ),
    "a folder's own manifest inside": lambda: _edited(
        _set("files", 2, "path", to="optimizer_0/ckptguard.manifest.json")
    ),
    "dots in names": lambda: _edited(_set("files", 2, "path", to="...a/.b/c..")),
    "largest numbers": lambda: _edited(
        _both(_set("step", to=2**53 - 1), _set("files", 1, "length_bytes", to=2**53 - 1))
    ),
    "empty optional arrays": lambda: _edited(_both(_set("items", to=[]), _set("mesh", to=[]))),
}


def _edited(edit: Edit) -> dict[str, Any]:
    members = full_members()
    edit(members)
    return members

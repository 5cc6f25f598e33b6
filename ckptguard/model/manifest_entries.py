"""What stands in a manifest: files, items, writer, mesh, probe; each with its own laws."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from ckptguard.errors import ManifestFormatError
from ckptguard.model.checksum import Checksum
from ckptguard.model.manifest_laws import (
    integer_problems,
    is_manifest_path,
    json_problems,
    label_problems,
    path_problems,
)


class Origin(StrEnum):
    """Who could see the bytes when the manifest was made."""

    SAVE = "save"  # the writer, while it wrote
    READ_BACK = "read_back"  # anybody, from storage, later


class Role(StrEnum):
    """What a file is to its checkpoint."""

    SHARD = "shard"
    METADATA = "metadata"
    SIDECAR = "sidecar"


class ChecksumSource(StrEnum):
    """Where the bytes were when their checksum was computed."""

    MEMORY = "memory"  # serialized, not yet handed to storage
    STORAGE = "storage"  # read from storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Versions of the software that wrote the checkpoint.

    Args:
        ckptguard: Version that made the manifest.
        torch: Version that wrote the shards; None where not known.
        python: Version that wrote the shards; None where not known.
        unknown_fields: Kept as read.
    """

    ckptguard: str
    torch: str | None = None
    python: str | None = None
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise every problem."""
        versions = {"ckptguard": self.ckptguard, "torch": self.torch, "python": self.python}
        raise_problems(
            [
                *(
                    problem
                    for name, text in versions.items()
                    if text is not None
                    for problem in label_problems(text, at=f"/{name}")
                ),
                *unknown_field_problems(self),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshDimension:
    """One dimension of the device mesh.

    Args:
        name: E.g. `dp_shard`.
        size: Ranks along it.
        unknown_fields: Kept as read.
    """

    name: str
    size: int
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise every problem."""
        raise_problems(
            [
                *label_problems(self.name, at="/name"),
                *integer_problems(self.size, at="/size", minimum=1),
                *unknown_field_problems(self),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One stored file of the save.

    Args:
        path: Relative to the folder that the manifest covers, `/`-separated.
        role: What it is to its checkpoint.
        length_bytes: Exact length.
        checksum: Of the whole file.
        checksum_source: Where the bytes were when it was computed.
        unknown_fields: Kept as read.
    """

    path: str
    role: Role
    length_bytes: int
    checksum: Checksum
    checksum_source: ChecksumSource
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise every problem."""
        problems = [
            *path_problems(self.path, at="/path"),
            *integer_problems(self.length_bytes, at="/length_bytes"),
        ]
        if self.path.endswith(".json") and "/" not in self.path and is_manifest_path(self.path):
            problems.append(f"/path: a manifest cannot list itself: {self.path}")
        if self.unknown_fields:
            problems.extend(unknown_field_problems(self))
        raise_problems(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestItem:
    """One item's extent in a listed file, half-open `[offset, offset + length_bytes)`.

    Args:
        fqn: Tensor or object.
        file: Path of a listed file.
        offset: First byte in that file.
        length_bytes: Bytes in that file.
        checksum: Of those bytes.
        offsets: Corner of the slice, in elements of the whole tensor; None for an object.
        sizes: Extent of the slice, in elements; None for an object.
        dtype: torch's name without prefix; None for an object.
        unknown_fields: Kept as read.
    """

    fqn: str
    file: str
    offset: int
    length_bytes: int
    checksum: Checksum
    offsets: tuple[int, ...] | None = None
    sizes: tuple[int, ...] | None = None
    dtype: str | None = None
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise every problem."""
        raise_problems(
            [
                *json_problems(self.fqn, at="/fqn"),
                *path_problems(self.file, at="/file"),
                *integer_problems(self.offset, at="/offset"),
                *integer_problems(self.length_bytes, at="/length_bytes"),
                *_slice_problems(self),
                *unknown_field_problems(self),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestProbe:
    """A value that the user's function gave at save time.

    Args:
        entrypoint: `module:function`.
        value: What it returned.
        tolerance: Largest absolute difference that is still the same.
        unknown_fields: Kept as read.
    """

    entrypoint: str
    value: float
    tolerance: float
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise every problem."""
        problems = [
            *label_problems(self.entrypoint, at="/entrypoint"),
            *_number_problems(self.value, at="/value"),
            *_number_problems(self.tolerance, at="/tolerance"),
            *unknown_field_problems(self),
        ]
        if self.tolerance < 0:
            problems.append("/tolerance: negative")
        raise_problems(problems)


def raise_problems(problems: list[str]) -> None:
    """Raise all of them, if there are any."""
    if problems:
        raise ManifestFormatError(problems)


def _slice_problems(item: ManifestItem) -> Iterator[str]:
    if len({item.offsets is None, item.sizes is None, item.dtype is None}) > 1:
        yield "/sizes: offsets, sizes and dtype stand together or not at all"
    if item.offsets is not None and item.sizes is not None and len(item.offsets) != len(item.sizes):
        yield f"/sizes: {len(item.sizes)} dimensions, offsets have {len(item.offsets)}"
    for name, values in (("offsets", item.offsets), ("sizes", item.sizes)):
        for index, value in enumerate(values or ()):
            yield from integer_problems(value, at=f"/{name}/{index}")
    if item.dtype is not None:
        yield from label_problems(item.dtype, at="/dtype")


def _number_problems(value: float, *, at: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield f"{at}: not a number"
    else:
        yield from json_problems(value, at=at)


def unknown_field_problems(value: Any, *, reserved: str | None = None) -> Iterator[str]:  # noqa: ANN401 - any value of a manifest
    """Yield why a value's unknown fields cannot stand beside its known ones."""
    known = {known_field.name for known_field in fields(value)} - {"unknown_fields"}
    for key, content in value.unknown_fields.items():
        if key in known or key == reserved:
            yield f"/{key}: both a known and an unknown field"
        yield from json_problems({key: content}, at="")

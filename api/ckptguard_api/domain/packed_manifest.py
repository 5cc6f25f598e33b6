"""A manifest as the service keeps it: few members as they are, the entries compressed.

The entries of a save of 100,000 files have 15 MB as text; neither this text nor the values that it is made
of are ever in memory as a whole.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

import orjson
import zstandard

from ckptguard.errors import TooLargeError
from ckptguard.formats.manifest_json import file_members, header_members, item_members
from ckptguard.formats.pickle_reader import paused_collector
from ckptguard.model.manifest import Manifest, Origin, identity
from ckptguard.model.manifest_laws import MAX_INTEGER
from ckptguard.model.policy import MIB

MAX_HEADER_BYTES: Final = 1 * MIB
"""Of a manifest's text without its entries: annotations are no place for data."""

_BATCH: Final = 1000
_MANY: Final = 5000
_LEVEL: Final = 3
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedManifest:
    """What is stored of a manifest.

    Args:
        part: Folder in the checkpoint; "" where the save has one part.
        identity: `sha256:…` of what it says about bytes.
        header: All members but `files` and `items`.
        digest: `sha256:…` of the body before compression.
        body: zstd of the JSON object of `files` and `items`.
        num_files: Files listed.
        bytes_total: Their lengths, added up.
        is_from_writer: The writer made it while it wrote.
    """

    part: str
    identity: str
    header: Mapping[str, Any]
    digest: str
    body: bytes
    num_files: int
    bytes_total: int
    is_from_writer: bool


def pack_manifest(manifest: Manifest) -> PackedManifest:
    """Split and compress a manifest.

    Raises:
        TooLargeError: Its header is beyond MAX_HEADER_BYTES, or its lengths add up to more than 2^53 - 1.
    """
    header = header_members(manifest)
    bytes_total = sum(file.length_bytes for file in manifest.files)
    _require_bounds(len(_compact(header)), bytes_total)
    with paused_collector(is_needed=len(manifest.files) + len(manifest.items) >= _MANY):
        digest, body = _compressed(_body_pieces(manifest))
        same = str(identity(manifest))
    return PackedManifest(
        part=manifest.part or "",
        identity=same,
        header=header,
        digest=digest,
        body=body,
        num_files=len(manifest.files),
        bytes_total=bytes_total,
        is_from_writer=manifest.origin is Origin.SAVE,
    )


def unpack_manifest(header: Mapping[str, Any], body: bytes) -> bytes:
    """Return the manifest as JSON text.

    Guarantees: `parse_manifest` of it equals the manifest that was packed.
    """
    return _compact(header)[:-1] + b"," + _unpacked(body)[1:]


def registered_lengths(part: str, body: bytes) -> dict[str, int]:
    """Return the lengths of the files of a packed manifest, by path in the checkpoint.

    Cost: the whole body is unpacked; callers hold back where a checkpoint has many files.
    """
    entries: Any = orjson.loads(_unpacked(body))
    prefix = f"{part}/" if part else ""
    return {prefix + file["path"]: file["length_bytes"] for file in entries["files"]}


def _unpacked(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)


def _require_bounds(header_bytes: int, bytes_total: int) -> None:
    problems = []
    if header_bytes > MAX_HEADER_BYTES:
        problems.append(f"/manifest: {header_bytes} bytes beside files and items, at most {MAX_HEADER_BYTES}")
    if bytes_total > MAX_INTEGER:
        problems.append(f"/manifest/files: {bytes_total} bytes in all, at most {MAX_INTEGER}")
    if problems:
        raise TooLargeError("; ".join(problems), problems=problems)


def _compact(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _compressed(pieces: Iterator[bytes]) -> tuple[str, bytes]:
    digest = hashlib.sha256()
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    packed = []
    for piece in pieces:
        digest.update(piece)
        packed.append(compressor.compress(piece))
    packed.append(compressor.flush())
    return f"sha256:{digest.hexdigest()}", b"".join(packed)


def _body_pieces(manifest: Manifest) -> Iterator[bytes]:
    yield b'{"files":['
    yield from _listed(manifest.files, file_members)
    if manifest.items:
        yield b'],"items":['
        yield from _listed(manifest.items, item_members)
    yield b"]}"


def _listed(entries: Sequence[_Entry], to_members: Callable[[_Entry], dict[str, Any]]) -> Iterator[bytes]:
    remaining = iter(entries)
    separator = b""
    while batch := list(islice(remaining, _BATCH)):
        yield (
            separator
            + orjson.dumps([to_members(entry) for entry in batch], option=orjson.OPT_SORT_KEYS)[1:-1]
        )
        separator = b","

"""From what the ranks wrote to one manifest, or the reason why there cannot be one."""

import platform
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import torch
from torch.distributed.checkpoint.metadata import Metadata

from ckptguard import __version__
from ckptguard.clock import SystemClock
from ckptguard.errors import ConfigError
from ckptguard.integrations.dcp.manifest_file import METADATA_NAME
from ckptguard.integrations.dcp.recording_fs import WrittenFile
from ckptguard.integrations.dcp.save_facts import Place, SaveFacts
from ckptguard.integrations.dcp.shard_report import ShardReport
from ckptguard.model.manifest import ChecksumSource, Manifest, ManifestFile, Origin, Role, Writer

FORMAT: Final = "dcp"
_SHOWN: Final = 3


class NotCoveredError(ConfigError):
    """Not every byte of a save went through the guarded writer, so no manifest can speak for it."""

    code = "not_covered"


def manifest_of_save(
    facts: SaveFacts,
    place: Place,
    *,
    metadata: Metadata,
    reports: Sequence[ShardReport],
    own: Sequence[WrittenFile],
    world_size: int,
) -> Manifest:
    """Return the manifest of a save that stock has just finished.

    Args:
        facts: As the user told them.
        place: Of the save.
        metadata: As stock completed it.
        reports: Of all ranks.
        own: What the coordinator itself wrote, `.metadata` too.
        world_size: Ranks that saved.

    Raises:
        NotCoveredError: A rank, a file or a checksum is missing.
        ManifestFormatError: Names that no manifest may list.
    """
    if place.step is None:
        msg = f"the name {place.final_root!r} tells no step; give one: step=N"
        raise NotCoveredError(msg)
    if len(reports) != world_size:
        msg = f"{len(reports)} of {world_size} ranks saved through a guarded writer"
        raise NotCoveredError(msg)
    shards = [file for report in reports for file in report.files]
    described = [file for file in own if file.path == METADATA_NAME]
    files = [
        *(_listed(file, Role.SHARD) for file in shards),
        *(_listed(file, Role.METADATA) for file in described),
    ]
    _require_all({file.path for file in files}, metadata)
    storage_meta: Any = metadata.storage_meta
    return Manifest(
        run=place.run,
        step=place.step,
        save_id=storage_meta.save_id,
        created_at=SystemClock().now(),
        origin=Origin.SAVE,
        format=FORMAT,
        writer=Writer(ckptguard=__version__, torch=str(torch.__version__), python=platform.python_version()),
        files=tuple(files),
        world_size=world_size,
        part=place.part,
        parts=facts.parts,
        fingerprints=facts.fingerprints,
        annotations=facts.annotations,
    )


def _listed(file: WrittenFile, role: Role) -> ManifestFile:
    if file.checksum is None:
        msg = f"{file.path} was not written in order, so it has no checksum"
        raise NotCoveredError(msg)
    return ManifestFile(
        path=file.path,
        role=role,
        length_bytes=file.length_bytes,
        checksum=file.checksum,
        checksum_source=ChecksumSource.MEMORY,
    )


def _require_all(listed: set[str], metadata: Metadata) -> None:
    missing = sorted({METADATA_NAME, *_referenced(metadata)} - listed)
    if missing:
        msg = f"not written through the guarded writer: {', '.join(missing[:_SHOWN])}"
        raise NotCoveredError(msg)


def _referenced(metadata: Metadata) -> Iterator[str]:
    stored: Iterable[Any] = (metadata.storage_data or {}).values()
    yield from (info.relative_path for info in stored)

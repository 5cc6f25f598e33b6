"""A checkpoint as its listing shows it: names, lengths, times and versions; nothing is opened."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import xxhash

from ckptguard.formats.dcp_commit import METADATA, RANK_LOCAL
from ckptguard.formats.folder_tree import FolderTree, join
from ckptguard.formats.parts import PartFolder, find_parts, linked_sibling
from ckptguard.formats.protocol import FormatAdapter
from ckptguard.formats.safetensors_index import INDEX_NAME
from ckptguard.formats.steps import StepFolder
from ckptguard.model.manifest import is_manifest_path
from ckptguard.model.saving_marker import is_saving_marker
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

_NUMBERED: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})(\..+)")
"""Hugging Face's sets: `model-00001-of-00004.safetensors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One step's folder.

    Args:
        run: Its run.
        step: Its number.
        folder: Relative to the listing; "" is the root itself.
        formats: Names of the adapters that recognise its parts.
        doubt: Why names say that it is not committed; None: they say it is.
        num_files: Below the folder.
        bytes_total: Of all of them.
        newest_at: Of the file written last; None where a file has no time.
        created_at: When the metadata was written last; where there is none, `newest_at`.
        metadata: Files to read a save id from, relative to the folder; empty where there is none to read.
        absent: Files that other names imply and that are not there.
        version: Of everything in the folder: changes when any file does.
        save_version: Of metadata and manifests, or of everything where there is no metadata: changes with
            each save, and when more can be said of one.
    """

    run: str
    step: int
    folder: str
    formats: tuple[str, ...]
    doubt: str | None
    num_files: int
    bytes_total: int
    newest_at: datetime | None
    created_at: datetime | None
    metadata: tuple[str, ...]
    absent: int
    version: str
    save_version: str


def describe(tree: FolderTree, run: str, step: StepFolder, adapters: Sequence[FormatAdapter]) -> Found:
    """Return what names and the listing tell of one step.

    Cost: once over the files of this step.
    """
    files = {
        path: stat for path, stat in files_below(tree, step.folder).items() if not is_saving_marker(path)
    }
    parts = find_parts(tree, step.folder, adapters)
    by_part = {part: tuple(_metadata_of(tree, part, step.folder)) for part in parts}
    metadata = [files[path] for paths in by_part.values() for path in paths if path in files]
    manifests = [stat for path, stat in files.items() if is_manifest_path(path)]
    link = linked_sibling(tree, step.folder) if step.folder else None
    return Found(
        run=run,
        step=step.step,
        folder=step.folder,
        formats=tuple(sorted(step.formats)),
        doubt=f"a link to {link}" if link else step.doubt,
        num_files=len(files),
        bytes_total=sum(stat.length_bytes for stat in files.values()),
        newest_at=_newest(files.values(), is_each_needed=True),
        created_at=_newest(metadata or files.values()),
        metadata=_with_save_ids(by_part),
        absent=_absent(files),
        version=_version(files.values()),
        save_version=_version([*metadata, *manifests] if metadata else files.values()),
    )


def files_below(tree: FolderTree, folder: str) -> Mapping[str, ObjectStat]:
    """Return every file below a folder by its path from there."""
    return dict(_files_below(tree, folder, ""))


def listing_of(tree: FolderTree, folder: str) -> Listing:
    """Return the listing of one folder, in time that depends on that folder alone."""
    root = tree.listing.in_store(folder) if folder else tree.listing.root
    return Listing(root=root, files=files_below(tree, folder))


def _files_below(tree: FolderTree, root: str, inner: str) -> Iterator[tuple[str, ObjectStat]]:
    here = join(root, inner)
    for name in tree.files.get(here, ()):
        stat = tree.listing.files.get(join(here, name))
        if stat is not None:
            yield join(inner, name), stat
    for child in tree.children.get(here, ()):
        yield from _files_below(tree, root, join(inner, child))


def _metadata_of(tree: FolderTree, part: PartFolder, root: str) -> Iterator[str]:
    """Yield the metadata files of a part by their path from the checkpoint's folder."""
    names = tree.files.get(part.folder, ())
    inner = part.folder.removeprefix(root).strip("/")
    if part.adapter.name == "dcp":
        found = [METADATA] if METADATA in names else [name for name in names if RANK_LOCAL.fullmatch(name)]
    elif part.adapter.name == "safetensors":
        found = [name for name in names if INDEX_NAME.fullmatch(name)]
    else:
        found = []
    yield from (join(inner, name) for name in found)


def _with_save_ids(by_part: Mapping[PartFolder, tuple[str, ...]]) -> tuple[str, ...]:
    """Only DCP keeps a save id, and it is the checkpoint's only where every part has it."""
    if any(part.adapter.name != "dcp" for part in by_part):
        return ()
    return tuple(path for paths in by_part.values() for path in paths)


def _newest(stats: Iterable[ObjectStat], *, is_each_needed: bool = False) -> datetime | None:
    times = [stat.modified_at for stat in stats]
    known = [time for time in times if time is not None]
    return None if not known or (is_each_needed and len(known) < len(times)) else max(known)


def _absent(paths: Iterable[str]) -> int:
    sets = Counter((match[1], match[2], match[3]) for path in paths if (match := _NUMBERED.fullmatch(path)))
    return sum(max(0, int(total) - present) for (_, total, _), present in sets.items())


def _version(stats: Iterable[ObjectStat]) -> str:
    digest = xxhash.xxh3_128()
    for stat in sorted(stats, key=lambda stat: stat.path):
        moment = stat.modified_at.isoformat() if stat.modified_at else ""
        digest.update(
            f"{stat.path}\0{stat.length_bytes}\0{moment}\0{stat.version}\0".encode(errors="replace")
        )
    return digest.hexdigest()

"""Check 1: is every file there that the metadata refers to?

Whether a part is committed is said by its adapter, from what stands in the folder;
those findings are in `Layout.findings`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Final

from ckptguard.checks.bounded import bounded
from ckptguard.checks.phrases import counted, item_in_words, some_of
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout, Shard
from ckptguard.storage.listing import Listing

_RANK_FILE: Final = re.compile(r"__(\d{1,9})_\d{1,9}\.distcp")
"""`__{rank}_{count}.distcp` (DEFAULT_SUFFIX and `_write_data`, torch 2.13, checkpoint/filesystem.py)."""
_RANK_METADATA: Final = re.compile(r"__(\d{1,9})\.metadata")
_MAX_GAPS: Final = 100
_SHARD_SUFFIXES: Final = (".distcp", ".safetensors")
_MANIFEST_SUFFIX: Final = "ckptguard.manifest.json"

_warning = partial(Finding, check=CheckName.EXISTENCE, severity=Severity.WARNING)
_info = partial(Finding, check=CheckName.EXISTENCE, severity=Severity.INFO)


def check_existence(
    layouts: Sequence[Layout], listing: Listing, *, listed: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Report every file that a layout refers to and the listing does not hold, and files left over.

    A file of 0 bytes is there. Files that no metadata refers to never condemn: torch
    leaves the files of a larger world behind when it saves into a used folder.

    Args:
        layouts: All parts of one checkpoint; paths relative to its root.
        listing: That root.
        listed: What manifests list, by path: part of the save, though no metadata refers to it
            (torch writes a file for every thread, also one that has nothing to store).

    Returns:
        Findings of check 1, bounded per kind.
    """
    shards = [(layout, shard) for layout in layouts for shard in layout.shards]
    absent = [(layout, shard) for layout, shard in shards if shard.path not in listing.files]
    missing = [shard for _, shard in absent if not _is_escape(shard.path, listing)]
    return bounded(
        chain(
            (_escaping(shard.path) for _, shard in absent if _is_escape(shard.path, listing)),
            _missing(missing, listing),
            _one_nodes_part([shard for _, shard in shards], missing),
            _uncommitted_ranks(layouts, listing),
            _links(layouts, listing),
            _absent_sidecars(layouts, listing),
            _unreferenced(layouts, listing, listed),
        )
    )


def _is_escape(path: str, listing: Listing) -> bool:
    return any(path == escape or path.startswith(f"{escape}/") for escape in listing.escapes)


def _escaping(path: str) -> Finding:
    return Finding(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=f"{path} is a link out of the allowed root, or not a regular file; it was not opened",
        file=path,
        expected="a regular file inside the root",
        observed="a link out of it, or another kind of file",
    )


def _missing(missing: Sequence[Shard], listing: Listing) -> Iterator[Finding]:
    by_folded = {path.casefold(): path for path in listing.files} if missing else {}
    for shard in missing:
        first = shard.items[0] if shard.items else None
        part = first.slice if first else None
        look_alike = by_folded.get(shard.path.casefold())
        yield Finding(
            code=FindingCode.MISSING_SHARD,
            check=CheckName.EXISTENCE,
            severity=Severity.ERROR,
            basis=Basis.DAMAGE,
            message=f"missing {shard.path}{_affected(shard)}"
            + (f"; {look_alike} is there, and names are case-sensitive" if look_alike else ""),
            file=shard.path,
            fqn=first.fqn if first else None,
            slice_offsets=part.offsets if part else None,
            slice_sizes=part.sizes if part else None,
            expected=f"a file of at least {shard.min_length_bytes} bytes",
            observed="no such file",
        )


def _affected(shard: Shard) -> str:
    if not shard.items:
        return ""
    names = [item_in_words(item) for item in shard.items[:4]]
    more = len(shard.items) - len(names)
    return f"; affects {', '.join(names)}" + (f" and {counted(more, 'more item')}" if more > 0 else "")


def _one_nodes_part(shards: Sequence[Shard], missing: Sequence[Shard]) -> Iterator[Finding]:
    """Warn where exactly whole ranks are missing, side by side: nodes that wrote to their own disks."""
    ranks = {rank for shard in shards if (rank := _rank_of(shard.path)) is not None}
    gone = {shard.path for shard in missing}
    whole = ranks - {
        rank for shard in shards if shard.path not in gone and (rank := _rank_of(shard.path)) is not None
    }
    is_only_whole = all(_rank_of(path) in whole for path in gone)
    if len(whole) < 2 or whole == ranks or not is_only_whole:  # noqa: PLR2004 - one lost file is no node
        return
    if not (_is_run(whole) or _is_run(ranks - whole)):
        return
    yield _warning(
        code=FindingCode.MISSING_SHARD,
        message=f"looks like one node's part of a multi-node save: all files of {counted(len(whole), 'rank')}"
        f" are missing, all files of the other {len(ranks) - len(whole)} are here",
        expected=f"files of {len(ranks)} ranks",
        observed=f"files of {len(ranks) - len(whole)} ranks",
    )


def _uncommitted_ranks(layouts: Sequence[Layout], listing: Listing) -> Iterator[Finding]:
    """Miss ranks where each commits by itself: a gap in their numbers, or shards of one without a commit.

    Source: `FileSystemWriter(use_collectives=False)`, torch 2.13: every rank writes its `__R.metadata`.
    """
    for part in sorted({layout.part for layout in layouts if layout.is_rank_local}):
        head = f"{part}/" if part else ""
        names = [
            path.removeprefix(head)
            for layout in layouts
            if layout.part == part
            for path in _metadata_paths(layout)
        ]
        ranks = {int(match[1]) for name in names if (match := _RANK_METADATA.fullmatch(name))}
        last = max(ranks, default=0)
        gaps = (rank for rank in range(last) if rank not in ranks)
        for rank in islice(gaps, _MAX_GAPS):
            yield _never_committed(f"{head}__{rank}.metadata", severity=Severity.ERROR)
        for rank in sorted(rank for rank in _ranks_that_wrote(part, listing) if rank > last):
            yield _never_committed(f"{head}__{rank}.metadata", severity=Severity.UNKNOWN)


def _ranks_that_wrote(part: str, listing: Listing) -> set[int]:
    paths = (path for path, stat in listing.files.items() if stat.length_bytes and _folder(path) == part)
    return {rank for path in paths if (rank := _rank_of(path)) is not None}


def _metadata_paths(layout: Layout) -> list[str]:
    return [metadata.path for metadata in layout.metadata_files]


def _never_committed(path: str, *, severity: Severity) -> Finding:
    is_gap = severity is Severity.ERROR
    why = "ranks after it have theirs" if is_gap else "its shards are here: killed, or of a larger world"
    return Finding(
        code=FindingCode.NOT_COMMITTED,
        check=CheckName.EXISTENCE,
        severity=severity,
        basis=Basis.DAMAGE if is_gap else None,
        message=f"a rank did not commit: no {path}, and {why}",
        file=path,
        expected=path,
        observed="no such file",
    )


def _rank_of(path: str) -> int | None:
    match = _RANK_FILE.fullmatch(PurePosixPath(path).name)
    return int(match[1]) if match else None


def _is_run(ranks: set[int]) -> bool:
    return max(ranks) - min(ranks) + 1 == len(ranks)


def _links(layouts: Sequence[Layout], listing: Listing) -> Iterator[Finding]:
    paths = [shard.path for layout in layouts for shard in layout.shards]
    links = [path for path in paths if path in listing.files and listing.files[path].is_link]
    if links:
        yield _info(
            code=FindingCode.LINK_FOLLOWED,
            message=f"read through {counted(len(links), 'symbolic link')} inside the root: {some_of(links)}",
            file=links[0],
            observed=f"{len(links)} links",
        )


def _absent_sidecars(layouts: Sequence[Layout], listing: Listing) -> Iterator[Finding]:
    for path in (path for layout in layouts for path in layout.sidecars):
        if path not in listing.files:
            yield _info(
                code=FindingCode.MISSING_SHARD,
                message=f"{path}, which belongs to this format but holds no tensor, is not there",
                file=path,
                observed="no such file",
            )


def _unreferenced(layouts: Sequence[Layout], listing: Listing, listed: Collection[str]) -> Iterator[Finding]:
    referred = {
        *(shard.path for layout in layouts for shard in layout.shards),
        *(metadata.path for layout in layouts for metadata in layout.metadata_files),
        *(path for layout in layouts for path in layout.sidecars),
    }
    folders, known = {_folder(path) for path in referred}, referred.union(listed)
    others = [
        path
        for path in sorted(listing.files)
        if path not in known and _folder(path) in folders and not path.endswith(_MANIFEST_SUFFIX)
    ]
    shards = [path for path in others if path.endswith(_SHARD_SUFFIXES)]
    # torch writes 0-byte files for ranks and threads that have nothing to store (pytorch#120356).
    yield from (_left_over(path, listing) for path in shards if listing.files[path].length_bytes)
    rest = sorted(set(others) - set(shards))
    if rest:
        yield _info(
            code=FindingCode.UNREFERENCED_FILE,
            message=f"{counted(len(rest), 'other file')} beside the shards, not part of this verdict:"
            f" {some_of(rest)}",
            file=rest[0],
            observed=f"{len(rest)} files",
        )


def _left_over(path: str, listing: Listing) -> Finding:
    length = listing.files[path].length_bytes
    return _warning(
        code=FindingCode.UNREFERENCED_FILE,
        message=f"{path} ({length} bytes) is not referred to by the metadata: left over from another save"
        " into this folder, and not checked",
        file=path,
        length_bytes=length,
        expected="only files that the metadata refers to",
        observed=f"{length} bytes",
    )


def _folder(path: str) -> str:
    return path.rpartition("/")[0]

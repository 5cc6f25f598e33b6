"""Is a checkpoint still the one that was validated? A listing against the evidence; no byte is read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from ckptguard.client.answers import FileSeen
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

MAX_DIFFERENCES: Final = 20
_LOCAL_VERSION: Final = re.compile(r"(\d+)-(\d+)-(\d+)", re.ASCII)
"""`inode-mtime_ns-size`, as `storage.local` makes it."""
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One file that is not as it was.

    Args:
        path: Relative to the checkpoint.
        what: For a person.
    """

    path: str
    what: str


def differences(evidence: Sequence[FileSeen], listing: Listing) -> tuple[Difference, ...]:
    """Return the files of the evidence that are gone or changed; at most MAX_DIFFERENCES.

    What is compared: lengths always; times where both sides know them; version ids where the
    store has any. The versions of local files hold an inode number, which another mount of the
    same file system may number differently: inodes count only where at least one file shows
    that both sides number alike. Files that the evidence does not list are no difference: no
    byte that was validated is another one because of them.

    Args:
        evidence: What the verdict binds to.
        listing: What stands there now, paths relative to the checkpoint.
    """
    share_inodes = _share_inodes(evidence, listing.files)
    found = (
        Difference(path=seen.path, what=what)
        for seen in evidence
        if (what := _difference(seen, listing.files.get(seen.path), share_inodes=share_inodes))
    )
    return tuple(islice(found, MAX_DIFFERENCES))


def total_differences(
    *, num_files: int | None, bytes_total: int | None, listing: Listing
) -> Iterator[Difference]:
    """Yield what is missing by totals alone, where no evidence can be had: much weaker."""
    length = sum(stat.length_bytes for stat in listing.files.values())
    if not listing.files or (num_files is not None and len(listing.files) < num_files):
        yield Difference(path="", what=f"{len(listing.files)} files, {num_files or 'some'} were validated")
    if bytes_total is not None and length < bytes_total:
        yield Difference(path="", what=f"{length} bytes, {bytes_total} were validated")


def _difference(seen: FileSeen, now: ObjectStat | None, *, share_inodes: bool) -> str | None:
    if now is None or now.length_bytes != seen.length_bytes:
        return (
            "is gone" if now is None else f"has {now.length_bytes} bytes, {seen.length_bytes} were validated"
        )
    before, after = _local_version(seen.version), _local_version(now.version)
    if before is not None and after is not None:
        return _local_difference(before, after, share_inodes=share_inodes)
    if seen.version is not None and now.version is not None and before is None and after is None:
        return None if seen.version == now.version else "has another version"
    if seen.modified_at is not None and now.modified_at is not None:
        return None if _same_time(seen.modified_at, now.modified_at) else "was written since"
    return None


def _local_difference(before: "_LocalVersion", after: "_LocalVersion", *, share_inodes: bool) -> str | None:
    is_same_time = _same_ns(before.mtime_ns, after.mtime_ns)
    if share_inodes:  # one mount, one granularity
        is_same_time = before.mtime_ns == after.mtime_ns
    if not is_same_time:
        return "was written since"
    return "was replaced since" if share_inodes and before.inode != after.inode else None


@dataclass(frozen=True, slots=True)
class _LocalVersion:
    inode: int
    mtime_ns: int


def _local_version(version: str | None) -> _LocalVersion | None:
    match = _LOCAL_VERSION.fullmatch(version or "")
    return None if match is None else _LocalVersion(int(match[1]), int(match[2]))


def _same_ns(one: int, other: int) -> bool:
    """Say whether two times are one, where a mount keeps whole seconds only."""
    if one % _NS and other % _NS:
        return one == other
    return one // _NS == other // _NS


def _same_time(one: datetime, other: datetime) -> bool:
    if one.microsecond and other.microsecond:
        return one == other
    return one.replace(microsecond=0) == other.replace(microsecond=0)


def _share_inodes(evidence: Iterable[FileSeen], files: Mapping[str, ObjectStat]) -> bool:
    for seen in evidence:
        now = files.get(seen.path)
        before = _local_version(seen.version)
        after = None if now is None else _local_version(now.version)
        if before is not None and after is not None and before.inode == after.inode:
            return True
    return False

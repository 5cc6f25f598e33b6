"""The rule about times (design §3): shards written after the commit.

A save that died while it overwrote an older one leaves new shards under the old
`.metadata`: sizes, CRCs and coverage all hold, and the load mixes two steps. Only the
order of modification times tells, where it was not lost in a copy.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from ckptguard.checks.phrases import counted, some_of
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Policy, StoreTimes
from ckptguard.storage.listing import Listing

_COMMIT_SUFFIXES: Final = (".metadata", ".snapshot_metadata")
"""Written after every shard: by DCP (`FileSystemWriter.finish`), and by torchsnapshot (`Snapshot.take`)."""


def check_times(layouts: Sequence[Layout], listing: Listing, policy: Policy) -> tuple[Finding, ...]:
    """Report shards that are newer than the metadata that committed them.

    Some newer, not all: UNKNOWN, always; a torn re-save looks exactly so. All newer:
    UNKNOWN where the store keeps its writers' times, a warning where times are copied.
    Not to be asked where a save-time manifest proves the bytes.

    Args:
        layouts: All parts; each is judged by itself, rank-local ones of a folder together.
        listing: The checkpoint's root.
        policy: `mtime_tolerance_s`, `times`, `is_mtime_ignored`.

    Returns:
        At most one finding per part.
    """
    if policy.is_mtime_ignored:
        return ()
    parts = sorted({layout.part for layout in layouts})
    ages = ((part, _ages(layouts, part, listing)) for part in parts)
    judged = (_judge(part, pairs, policy) for part, pairs in ages)
    return tuple(finding for finding in judged if finding is not None)


class _Age(NamedTuple):
    """A referenced shard with its own time and that of the metadata which committed it."""

    path: str
    written_at: datetime
    committed_at: datetime


def _ages(layouts: Iterable[Layout], part: str, listing: Listing) -> list[_Age]:
    pairs = []
    for layout in layouts:
        committed_at = _committed_at(layout, listing)
        if layout.part != part or committed_at is None:
            continue
        stats = ((shard.path, listing.files.get(shard.path)) for shard in layout.shards)
        pairs += [
            _Age(path, stat.modified_at, committed_at)
            for path, stat in stats
            if stat is not None and stat.length_bytes and stat.modified_at is not None
        ]
    return pairs


def _committed_at(layout: Layout, listing: Listing) -> datetime | None:
    """Return the time of the newest commit file; None where times are not kept."""
    stats = (
        listing.files.get(metadata.path)
        for metadata in layout.metadata_files
        if metadata.path.endswith(_COMMIT_SUFFIXES)
    )
    times = [stat.modified_at for stat in stats if stat is not None and stat.modified_at is not None]
    return max(times, default=None)


def _judge(part: str, pairs: Sequence[_Age], policy: Policy) -> Finding | None:
    tolerance = timedelta(seconds=policy.mtime_tolerance_s)
    newer = [age for age in pairs if age.written_at - age.committed_at > tolerance]
    if not newer:
        return None
    is_all = len(newer) == len(pairs)
    is_doubt = not is_all or policy.times is StoreTimes.ORIGINAL
    latest = max(newer, key=lambda age: age.written_at - age.committed_at)
    late_s = (latest.written_at - latest.committed_at).total_seconds()
    names = some_of([age.path for age in newer])
    what = f"all {counted(len(pairs), 'shard')}" if is_all else f"{len(newer)} of {len(pairs)} shards"
    return Finding(
        code=FindingCode.REWRITTEN_AFTER_COMMIT,
        check=CheckName.PROVENANCE,
        severity=Severity.UNKNOWN if is_doubt else Severity.WARNING,
        message=f"{what}{f' of {part}' if part else ''} written up to {late_s:.0f} s after the metadata"
        f" that committed them: {names}; {_reading(is_all=is_all)}",
        file=latest.path,
        expected=f"not after {latest.committed_at.isoformat()} + {policy.mtime_tolerance_s:g} s",
        observed=latest.written_at.isoformat(),
    )


def _reading(*, is_all: bool) -> str:
    if is_all:
        return "rewritten in place, or copied without its times"
    return "a save that died while overwriting this one looks exactly so"

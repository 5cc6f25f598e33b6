"""One look at a checkpoint: its listing, its layouts, and what checks 1-3 say of them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ckptguard.checks.byte_count import check_byte_counts
from ckptguard.checks.coverage import check_coverage, check_rank_local
from ckptguard.checks.existence import check_existence
from ckptguard.checks.settle import confirm, needs_second_look, needs_time
from ckptguard.clock import Clock
from ckptguard.errors import ConfigError
from ckptguard.formats.checkpoint import Checkpoint
from ckptguard.formats.parts import not_opened
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Policy
from ckptguard.storage.listing import Listing

_MAX_ESCAPES_TOLD: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at one moment.

    Args:
        checkpoint: Its parts, as their metadata describes them.
        listing: Every file below its root.
        findings: Of what was listed and of the metadata; no byte of a shard was read for them.
    """

    checkpoint: Checkpoint
    listing: Listing
    findings: tuple[Finding, ...]


def look(checkpoint: Checkpoint, listing: Listing, *, listed: Collection[str] = ()) -> Look:
    """Hold the layouts against the listing and against themselves. Pure.

    Args:
        checkpoint: Its parts.
        listing: Of its root.
        listed: What manifests list: of these files none is left over.
    """
    layouts = checkpoint.layouts
    findings = (
        *(finding for layout in layouts for finding in layout.findings),
        *check_existence(layouts, listing, listed=listed),
        *check_byte_counts(layouts, listing),
        *check_coverage(layouts),
        *check_rank_local(layouts),
    )
    return Look(checkpoint=checkpoint, listing=listing, findings=findings)


def settled_look(first: Look, look_again: Callable[[], Look], *, policy: Policy, clock: Clock) -> Look:
    """Look twice where the first look condemns; wait before, where time could heal it.

    Args:
        first: What was seen.
        look_again: Lists and reads the metadata anew, past every cache.
        policy: Its settle time; 0 looks again at once.
        clock: Waits.
    """
    if not needs_second_look(first.findings):
        return first
    if policy.settle_s > 0 and needs_time(first.findings):
        clock.sleep(policy.settle_s)
    second = look_again()
    is_same = _metadata_versions(first) == _metadata_versions(second)
    return replace(second, findings=confirm(first.findings, second.findings, is_same_metadata=is_same))


def metadata_paths(seen: Look) -> tuple[str, ...]:
    """Return the metadata files of all parts, each once, relative to the checkpoint's root."""
    files = (file.path for layout in seen.checkpoint.layouts for file in layout.metadata_files)
    return tuple(dict.fromkeys(files))


def _metadata_versions(seen: Look) -> Mapping[str, tuple[int, str | None]]:
    stats = {path: seen.listing.files.get(path) for path in metadata_paths(seen)}
    return {path: (stat.length_bytes, stat.version) for path, stat in stats.items() if stat is not None}


def is_single_file(listing: Listing) -> bool:
    """Say whether a file was asked for, not a folder."""
    return len(listing.files) == 1 and listing.root in listing.files


def refuse_part_of_a_set(seen: Look, listing: Listing, target: str) -> None:
    """Refuse to judge a checkpoint of several files by one of them.

    Raises:
        ConfigError: Only one file was asked for, and it does not stand for itself.
    """
    codes = {finding.code for finding in seen.findings}
    if is_single_file(listing) and codes & {FindingCode.MISSING_SHARD, FindingCode.NOT_COMMITTED}:
        msg = f"{target} is one file of a checkpoint: name the folder that holds it"
        raise ConfigError(msg)


def below_root(listing: Listing, root: str) -> Listing:
    """Cut a listing down to one checkpoint, which stands at `root`, below it or around it."""
    if root == listing.root:
        return listing
    if is_single_file(listing):
        name = listing.root.rpartition("/")[2]
        return Listing(root=root, files={name: listing.files[listing.root]})
    return listing.below(root.removeprefix(f"{listing.root}/") if listing.root else root)


def unrecognised(seen: Look) -> tuple[Finding, ...]:
    """Say what is there instead of a checkpoint; behind a link out of the root there may be one."""
    if seen.checkpoint.layouts:
        return ()
    what = "; ".join(seen.checkpoint.sightings) or "no file at all"
    return (
        *map(not_opened, seen.listing.escapes[:_MAX_ESCAPES_TOLD]),
        Finding(
            code=FindingCode.UNKNOWN_LAYOUT,
            check=CheckName.EXISTENCE,
            severity=Severity.UNKNOWN,
            message=f"no checkpoint format was recognised; seen: {what}",
            observed=what,
        ),
    )

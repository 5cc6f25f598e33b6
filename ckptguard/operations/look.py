"""One look at a checkpoint: its listing, its layouts, and what checks 1-3 say of them."""

from collections.abc import Callable
from dataclasses import dataclass

from ckptguard.checks.byte_count import check_byte_counts
from ckptguard.checks.coverage import check_coverage, check_rank_local
from ckptguard.checks.existence import check_existence
from ckptguard.checks.settle import confirm, needs_second_look
from ckptguard.clock import Clock
from ckptguard.formats.checkpoint import Checkpoint
from ckptguard.model.finding import Finding
from ckptguard.model.policy import Policy
from ckptguard.storage.listing import Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen at one moment.

    Args:
        checkpoint: Its parts, as their metadata describes them.
        listing: Every file below its root.
        findings: Of checks 1-3, those of reading the metadata included.
    """

    checkpoint: Checkpoint
    listing: Listing
    findings: tuple[Finding, ...]


LookAgain = Callable[[], tuple[Checkpoint, Listing]]


def look(checkpoint: Checkpoint, listing: Listing) -> Look:
    """Hold the layouts against the listing and against themselves. Pure."""
    layouts = checkpoint.layouts
    findings = (
        *(finding for layout in layouts for finding in layout.findings),
        *check_existence(layouts, listing),
        *check_byte_counts(layouts, listing),
        *check_coverage(layouts),
        *check_rank_local(layouts),
    )
    return Look(checkpoint=checkpoint, listing=listing, findings=findings)


def settled_look(first: Look, look_again: LookAgain, *, policy: Policy, clock: Clock) -> Look:
    """Look twice, where the first look could have caught a save, or a listing, in motion.

    Args:
        first: What was seen.
        look_again: Lists and opens anew.
        policy: Its settle time; 0 takes the first look as it is.
        clock: Waits.
    """
    if policy.settle_s <= 0 or not needs_second_look(first.findings):
        return first
    clock.sleep(policy.settle_s)
    second = look(*look_again())
    return Look(
        checkpoint=second.checkpoint,
        listing=second.listing,
        findings=confirm(first.findings, second.findings),
    )

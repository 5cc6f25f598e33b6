"""Branches: which saves of a run lead to where it is now.

A resume from a checkpoint opens a branch. What was saved before it, on the way to it, is its lineage;
everything else went another way and is rolled back: kept, selectable by its step, and never a
resume target by itself. A run's live checkpoints are those of the lineage of its current branch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Lineage = Mapping[int, int]
"""Branches that lead somewhere, each with its last step that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the order of a run; saves of one step share it."""

    branch: int
    step: int


def lineage_of(place: Place, origins: Mapping[int, Place | None]) -> Lineage:
    """Return what leads to `place`, newest branch first.

    Args:
        place: Where the run is resumed.
        origins: Where each branch of the run was opened from; None or absent: from nothing.

    Raises:
        ValueError: A branch is opened from itself or a later one.
    """
    lineage = {place.branch: place.step}
    at = place.branch
    while (origin := origins.get(at)) is not None:
        if origin.branch >= at:
            msg = f"branch {at} is opened from branch {origin.branch}"
            raise ValueError(msg)
        lineage[origin.branch] = origin.step
        at = origin.branch
    return lineage


def is_on_the_way(place: Place, lineage: Lineage) -> bool:
    """Say whether a save at `place` belongs to this lineage."""
    return place.step <= lineage.get(place.branch, -1)

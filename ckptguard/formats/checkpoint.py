"""A whole checkpoint: its parts, found below one folder."""

from collections.abc import Iterable
from dataclasses import dataclass

from ckptguard.model.finding import Finding
from ckptguard.model.layout import Layout, Shard
from ckptguard.model.report import StepSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint below one folder.

    Args:
        root: Folder in the store; all paths of the layouts are relative to it.
        layouts: The parts; at least one, except where nothing was recognised.
        step: The step, where the folder's name or a tracker tells it.
        steps: All steps that stand beside it, where a folder of steps was asked for.
        surroundings: Findings about pointers and other steps.
        sightings: What was seen where no format was recognised, for a person.
    """

    root: str
    layouts: tuple[Layout, ...]
    step: int | None = None
    steps: tuple[StepSummary, ...] = ()
    surroundings: tuple[Finding, ...] = ()
    sightings: tuple[str, ...] = ()


def distinct_shards(layouts: Iterable[Layout]) -> list[Shard]:
    """Return the shards of all parts; a file that several ranks' metadata share appears once."""
    by_path: dict[str, Shard] = {}
    for shard in (shard for layout in layouts for shard in layout.shards):
        known = by_path.get(shard.path)
        by_path[shard.path] = shard if known is None else _merged(known, shard)
    return list(by_path.values())


def _merged(one: Shard, other: Shard) -> Shard:
    return Shard(
        path=one.path,
        encoding=one.encoding,
        items=tuple(sorted({*one.items, *other.items}, key=lambda item: (item.offset, item.fqn))),
        min_length_bytes=max(one.min_length_bytes, other.min_length_bytes),
        exact_length_bytes=one.exact_length_bytes,
    )

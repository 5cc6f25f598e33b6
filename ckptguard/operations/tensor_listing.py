"""From layouts and what was measured to the list of tensors that a verdict keeps. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ckptguard.model.layout import ItemKind, Layout, Shard
from ckptguard.model.report import TensorNumerics
from ckptguard.model.tensor_list import MAX_FILES_NAMED, TensorEntry, pack_tensors


@dataclass(slots=True)
class _Place:
    """Where one tensor lies, while it is counted."""

    length_bytes: int = 0
    num_files: int = 0
    last_file: str | None = None
    files: list[str] = field(default_factory=list)

    def add(self, path: str, length_bytes: int) -> None:
        self.length_bytes += length_bytes
        if path != self.last_file:
            self.last_file = path
            self.num_files += 1
            if self.num_files <= MAX_FILES_NAMED:
                self.files.append(path)


def list_tensors(layouts: Sequence[Layout], numerics: Mapping[str, TensorNumerics]) -> bytes:
    """Return the tensors of a checkpoint as a report carries them (`model.tensor_list`).

    Args:
        layouts: Of its parts. Ranks that describe one tensor each for themselves make one entry.
        numerics: What was measured, by FQN.

    Cost: one pass over all items; some hundred bytes of memory for each tensor.
    """
    return pack_tensors(_entries(layouts, numerics))


def _entries(layouts: Sequence[Layout], numerics: Mapping[str, TensorNumerics]) -> Iterator[TensorEntry]:
    slices: dict[tuple[str, str, str, tuple[int, ...]], int] = {}
    for layout in layouts:
        for tensor in layout.tensors:
            key = tensor.fqn, layout.part, tensor.dtype, tensor.shape
            slices[key] = slices.get(key, 0) + len(tensor.slices)
    places = {part: _places(_shards_of(layouts, part)) for part in {layout.part for layout in layouts}}
    for key in sorted(slices):
        fqn, part, dtype, shape = key
        place = places[part].get(fqn) or _Place()
        yield TensorEntry(
            fqn=fqn,
            part=part,
            dtype=dtype,
            shape=shape,
            num_slices=slices[key],
            length_bytes=place.length_bytes,
            num_files=place.num_files,
            files=tuple(place.files),
            numerics=numerics.get(fqn),
        )


def _shards_of(layouts: Iterable[Layout], part: str) -> list[Shard]:
    # Ranks that commit by themselves may each list a shard that they share.
    by_path = {shard.path: shard for layout in layouts if layout.part == part for shard in layout.shards}
    return [by_path[path] for path in sorted(by_path)]


def _places(shards: Iterable[Shard]) -> dict[str, _Place]:
    found: dict[str, _Place] = defaultdict(_Place)
    for shard in shards:
        for item in shard.items:
            if item.kind is ItemKind.TENSOR:
                found[item.fqn].add(shard.path, item.length_bytes)
    return found

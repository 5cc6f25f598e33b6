"""Which safetensors files of one folder belong together, from their names and an index."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ckptguard.formats.safetensors_index import ShardIndex

_NUMBERED: Final = re.compile(r"(?P<stem>.+?)-(?P<number>\d{5,6})-of-(?P<total>\d{5,6})\.safetensors")
_PER_RANK: Final = re.compile(
    r"shard-(?P<rank>\d{5,9})-model-(?P<number>\d{5,6})-of-(?P<total>\d{5,6})\.safetensors"
)
"""`SHARDED_FILE_NAME`, torch 2.13 distributed/checkpoint/_hf_utils.py."""
SUFFIX: Final = ".safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """Files that make one set of tensors.

    Args:
        files: Every file that must be there, present or not, sorted.
        index: What names them; None where only their own names do.
        num_ranks: Highest rank in the names, counted from 1; 0 where each file holds whole tensors.
        absent_numbers: File numbers that no rank wrote (`num_ranks` > 0 only).
    """

    files: tuple[str, ...]
    index: ShardIndex | None = None
    num_ranks: int = 0
    absent_numbers: tuple[int, ...] = ()


def is_shard_name(name: str) -> bool:
    """Say whether a file directly in a folder is a safetensors file, and not litter like `._x`."""
    return name.endswith(SUFFIX) and not name.startswith(".")


def group_files(names: Iterable[str], indexes: Sequence[ShardIndex]) -> tuple[FileSet, ...]:
    """Group the files of one folder into sets; every tensor of a set has one home in it.

    Files that an index does not name and whose numbering makes them look like its own
    (left over from a save with other shards) make no set: nothing reads them by the index.

    Args:
        names: Files of the folder for which `is_shard_name` holds.
        indexes: Those that describe files of this folder.
    """
    sets = [FileSet(files=index.shards, index=index) for index in indexes]
    named = {name for file_set in sets for name in file_set.files}
    stems = {match["stem"] for name in named if (match := _NUMBERED.fullmatch(name))}
    rest = [name for name in sorted(names) if name not in named and not _is_of_stem(name, stems)]
    per_rank = [match for name in rest if (match := _PER_RANK.fullmatch(name))]
    numbered = [
        match for name in rest if not _PER_RANK.fullmatch(name) and (match := _NUMBERED.fullmatch(name))
    ]
    taken = {match[0] for match in (*per_rank, *numbered)}
    sets += _per_rank_sets(per_rank)
    sets += _numbered_sets(numbered)
    sets += (FileSet(files=(name,)) for name in rest if name not in taken)
    return tuple(sets)


def _is_of_stem(name: str, stems: set[str]) -> bool:
    match = _NUMBERED.fullmatch(name)
    return match is not None and match["stem"] in stems


def _per_rank_sets(matches: Sequence[re.Match[str]]) -> Iterator[FileSet]:
    for total in sorted({match["total"] for match in matches}):
        ours = [match for match in matches if match["total"] == total]
        numbers = {int(match["number"]) for match in ours}
        yield FileSet(
            files=tuple(sorted(match[0] for match in ours)),
            num_ranks=max(int(match["rank"]) for match in ours),
            absent_numbers=tuple(sorted(set(range(1, int(total) + 1)) - numbers)),
        )


def _numbered_sets(matches: Sequence[re.Match[str]]) -> Iterator[FileSet]:
    """Demand every number from 1 to the total that each name states (from 0 where a 0 stands)."""
    for stem, total in sorted({(match["stem"], match["total"]) for match in matches}):
        numbers = {
            match["number"]: match[0] for match in matches if (match["stem"], match["total"]) == (stem, total)
        }
        first = 0 if any(int(number) == 0 for number in numbers) else 1
        width = len(total)
        wanted = {
            f"{stem}-{number:0{width}d}-of-{total}{SUFFIX}" for number in range(first, first + int(total))
        }
        yield FileSet(files=tuple(sorted(wanted.union(numbers.values()))))

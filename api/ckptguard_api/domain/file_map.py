"""What a verdict says of each file: one letter for each of up to a million, details for those asked for."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ckptguard.model.finding import Severity
from ckptguard_api.domain.evidence_files import entries_at, entries_in, evidence_batches, parsed_batch
from ckptguard_api.domain.storable_text import storable

MAX_CELLS: Final = 1_000_000

_LOOKED_FOR: Final = 64
"""Faulty paths that are looked for in a text before it is cheaper to parse it."""
_UNREAD: Final = b'"checksum":null'  # in no name: there a quotation mark comes after a backslash
# `__RANK_NUMBER.distcp` and `__RANK.metadata` (torch, checkpoint/filesystem.py and state_dict_saver.py).
_RANK: Final = re.compile(r"(?:^|/)__([0-9]{1,9})(?:_[0-9]+\.distcp|(?:\.\w+)*\.metadata)$")


class FileState(StrEnum):
    """The answer about one file, gravest last; the values are the letters of a map."""

    LISTED = "l"  # there, with its length; its bytes were not read
    READ = "r"  # every byte read, nothing against it
    NOTED = "n"  # a warning
    UNTOLD = "u"  # more of a kind was found than is told file by file, perhaps here
    DOUBTED = "d"
    FAULTY = "f"
    MISSING = "m"


STATE_WORDS: Final[Mapping[FileState, str]] = {
    FileState.READ: "read, nothing against it",
    FileState.LISTED: "listed, not read",
    FileState.NOTED: "warning",
    FileState.UNTOLD: "not told by name",
    FileState.DOUBTED: "in doubt",
    FileState.FAULTY: "faulty",
    FileState.MISSING: "missing",
}
STATE_OF_SEVERITY: Final[Mapping[str, FileState]] = {
    Severity.ERROR.value: FileState.FAULTY,
    Severity.UNKNOWN.value: FileState.DOUBTED,
    Severity.WARNING.value: FileState.NOTED,
}
"""What a finding makes of its file, gravest first; of other severities: nothing."""
GRAVE: Final = (FileState.MISSING, FileState.FAULTY, FileState.DOUBTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The gravest finding about one file.

    Args:
        severity: Its own.
        code: Its own.
        message: Its own.
    """

    severity: str
    code: str
    message: str

    @property
    def state(self) -> FileState | None:
        """What it makes of its file; None: nothing."""
        return STATE_OF_SEVERITY.get(self.severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What was found about files.

    Args:
        by_path: As texts are stored.
        is_cut: More was found of some kind than is told file by file.
    """

    by_path: Mapping[str, Fault]
    is_cut: bool = False

    def state_of(self, path: str, *, is_read: bool) -> FileState:
        """Return the answer about a file that is there."""
        fault = self.by_path.get(storable(path))
        state = None if fault is None else fault.state
        return state or self.usual(is_read=is_read)

    def usual(self, *, is_read: bool) -> FileState:
        """Return the answer about a file that nothing was told of."""
        if self.is_cut:
            return FileState.UNTOLD
        return FileState.READ if is_read else FileState.LISTED


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMap:
    """Every file of a checkpoint, a letter each.

    Args:
        states: Letters of `FileState`: of the evidence's files in their order, then of the missing ones.
        missing: Paths that findings say are not there, sorted.
        left_out: Files beyond `MAX_CELLS`.
    """

    states: str
    missing: tuple[str, ...]
    left_out: int = 0

    @property
    def counts(self) -> Mapping[FileState, int]:
        """How many files are in each state, gravest first; no state without any."""
        found = Counter(self.states)
        return {state: found[state.value] for state in reversed(FileState) if found[state.value]}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCell:
    """One file of a map, in words.

    Args:
        number: Its place in the map, from 0.
        path: As the checkpoint names it.
        state: The answer.
        length_bytes: None: it is not there.
        checksum: `algorithm:hex`; None: it was not read.
        rank: That wrote it, where its name says so.
        fault: The gravest finding about it.
    """

    number: int
    path: str
    state: FileState
    length_bytes: int | None
    checksum: str | None
    rank: int | None
    fault: Fault | None


def map_files(body: bytes | None, faults: Faults) -> FileMap:
    """Return the map of a verdict's evidence.

    Cost: memory of a letter for each file; of texts in which no faulty file is named, none is parsed.
    """
    needles = _needles(faults)
    letters: list[str] = []
    count, seen = 0, set[str]()
    for batch in evidence_batches(body) if body is not None else ():
        count += entries_in(batch)
        if count <= MAX_CELLS:
            letters.append(_letters(batch, needles, faults, seen))
    missing = _missing(faults, seen)
    cells = sum(map(len, letters))
    return FileMap(
        states="".join(letters) + FileState.MISSING.value * len(missing),
        missing=missing,
        left_out=count - cells,
    )


def _needles(faults: Faults) -> list[bytes] | None:
    """Return the faulty paths as texts have them; None: too many, or written another way there."""
    if len(faults.by_path) > _LOOKED_FOR or any("\\" in path for path in faults.by_path):
        return None
    return [json.dumps(path)[1:-1].encode() for path in faults.by_path]


def _letters(batch: bytes, needles: list[bytes] | None, faults: Faults, seen: set[str]) -> str:
    count, unread = entries_in(batch), batch.count(_UNREAD)
    is_plain = needles is not None and not any(needle in batch for needle in needles)
    if is_plain and unread in (0, count):
        return faults.usual(is_read=unread == 0).value * count
    entries = parsed_batch(batch)
    seen.update(path for path in (storable(entry["path"]) for entry in entries) if path in faults.by_path)
    states = (faults.state_of(entry["path"], is_read=entry.get("checksum") is not None) for entry in entries)
    return "".join(state.value for state in states)


def _missing(faults: Faults, seen: set[str]) -> tuple[str, ...]:
    absent = (path for path, fault in faults.by_path.items() if path not in seen)
    return tuple(sorted(path for path in absent if faults.by_path[path].state in GRAVE))


def cells_at(
    body: bytes | None, faults: Faults, places: Sequence[int], *, num_files: int, missing: Sequence[str]
) -> Iterator[FileCell]:
    """Yield the files at some places of a map.

    Args:
        body: Of the evidence.
        faults: What was found.
        places: From 0, ascending.
        num_files: Of the evidence.
        missing: Of the map.
    """
    if body is not None:
        yield from (_cell(place, entry, faults) for place, entry in entries_at(body, places))
    for place in places:
        if num_files <= place < num_files + len(missing):
            yield _missing_cell(place, missing[place - num_files], faults)


def _cell(number: int, entry: Mapping[str, Any], faults: Faults) -> FileCell:
    path, checksum = entry["path"], entry.get("checksum")
    return FileCell(
        number=number,
        path=path,
        state=faults.state_of(path, is_read=checksum is not None),
        length_bytes=entry["length_bytes"],
        checksum=checksum,
        rank=rank_of(path),
        fault=faults.by_path.get(storable(path)),
    )


def _missing_cell(number: int, path: str, faults: Faults) -> FileCell:
    return FileCell(
        number=number,
        path=path,
        state=FileState.MISSING,
        length_bytes=None,
        checksum=None,
        rank=rank_of(path),
        fault=faults.by_path[path],
    )


def rank_of(path: str) -> int | None:
    """Return the rank that a file's name gives, as torch names files; None: it gives none."""
    found = _RANK.search(path)
    return None if found is None else int(found[1])

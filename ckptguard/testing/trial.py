"""One random change of one file, drawn from a seed, applied and taken back."""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ckptguard.testing.edits import times_kept


class TrialKind(StrEnum):
    """What is changed."""

    BIT_FLIP = "bit_flip"
    ZERO_RANGE = "zero_range"
    TRUNCATE = "truncate"


ZEROED_BYTES: Final = (1, 16, 256, 1024, 4096)
_BITS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One change.

    Args:
        seed: What it was drawn from.
        kind: What is changed.
        file: Relative to the checkpoint.
        offset: First byte changed; for a truncation the length that remains.
        length_bytes: Bytes changed; for a truncation those removed.
        bit: Bit flipped; 0 otherwise.
    """

    seed: int
    kind: TrialKind
    file: str
    offset: int
    length_bytes: int
    bit: int = 0

    def change(self, original: bytes) -> bytes:
        """Return the file's bytes after the change."""
        head, tail = original[: self.offset], original[self.offset + self.length_bytes :]
        if self.kind is TrialKind.BIT_FLIP:
            return head + bytes([original[self.offset] ^ (1 << self.bit)]) + tail
        if self.kind is TrialKind.ZERO_RANGE:
            return head + bytes(self.length_bytes) + tail
        return head


def draw_trial(seed: int, lengths: Mapping[str, int], kinds: Sequence[TrialKind]) -> Trial:
    """Draw a change; every byte of all files is as likely as any other.

    Args:
        seed: Same seed, same change.
        lengths: Bytes of each file that may be hit; at least one is not empty.
        kinds: Drawn from evenly; repeat one to have it more often.
    """
    chance = random.Random(seed)  # noqa: S311 - chosen to be repeatable
    kind = chance.choice(kinds)
    files = sorted(lengths)
    file = chance.choices(files, weights=[lengths[file] for file in files])[0]
    offset = chance.randrange(lengths[file])
    length = 1
    if kind is TrialKind.ZERO_RANGE:
        length = min(chance.choice(ZEROED_BYTES), lengths[file] - offset)
    if kind is TrialKind.TRUNCATE:
        length = lengths[file] - offset
    return Trial(
        seed=seed,
        kind=kind,
        file=file,
        offset=offset,
        length_bytes=length,
        bit=chance.randrange(_BITS) if kind is TrialKind.BIT_FLIP else 0,
    )


@contextmanager
def applied(trial: Trial, folder: Path, original: bytes) -> Iterator[None]:
    """Change the file for the length of a block; its time never shows it.

    Args:
        trial: The change.
        folder: A private copy of the checkpoint.
        original: The file's own bytes.
    """
    path = folder / trial.file
    _rewrite(path, trial.change(original))
    try:
        yield
    finally:
        _rewrite(path, original)


def _rewrite(path: Path, data: bytes) -> None:
    with times_kept(path):
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)

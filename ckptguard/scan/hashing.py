"""Checksums that advance while a file is read."""

import hashlib
from collections.abc import Collection
from typing import Protocol

import xxhash

from ckptguard.model.checksum import Algorithm, Checksum


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class FileHasher:
    """XXH3-128 of a file always, and what else its manifest asks for.

    Args:
        further: Other algorithms; those that are not computed here are left out.
    """

    def __init__(self, further: Collection[Algorithm] = ()) -> None:
        self._hashes: dict[Algorithm, _Hash] = {Algorithm.XXH3_128: xxhash.xxh3_128()}
        if Algorithm.SHA256 in further:
            self._hashes[Algorithm.SHA256] = hashlib.sha256()

    def update(self, view: memoryview) -> None:
        """Take the next bytes."""
        for state in self._hashes.values():
            state.update(view)

    def checksums(self) -> tuple[Checksum, ...]:
        """Return the checksums of all bytes so far, XXH3-128 first."""
        return tuple(
            Checksum(algorithm=algorithm, hex_digits=state.hexdigest())
            for algorithm, state in self._hashes.items()
        )

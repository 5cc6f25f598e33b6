"""The hash of record names in a serialization id, as torch's Linux builds compute it.

torch combines `std::hash` of every name in the order in which a C++
`unordered_set` iterates. Both belong to the standard library; this is libstdc++'s,
which every Linux build of torch uses. Other builds (macOS, Windows) differ.

Source: `writeSerializationId` in pytorch caffe2/serialize/inline_container.cc;
gcc libstdc++-v3: libsupc++/hash_bytes.cc, bits/hashtable.h (`_M_insert_bucket_begin`,
`_M_rehash_aux`), src/c++11/hashtable_c++0x.cc and src/shared/hashtable-aux.cc (primes).
"""

from collections.abc import Sequence
from typing import Final

from ckptguard.formats.torch_zip_render import combine_hash

_MASK: Final = (1 << 64) - 1
_SEED: Final = 0xC70F6907
_MULTIPLIER: Final = 0xC6A4A7935BD1E995
_SHIFT: Final = 47
_WORD_BYTES: Final = 8
_BUCKET_COUNTS: Final = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153,
)  # fmt: skip
"""Sizes through which a set grows when names are inserted one by one."""


def hash_names(names: Sequence[bytes]) -> int | None:
    """Return the first half of a serialization id as a number.

    Args:
        names: Of all records before the id, in the order written.

    Returns:
        None for more names than a set of the largest size known here holds.

    Cost: linear.
    """
    if len(names) > _BUCKET_COUNTS[-1]:
        return None
    combined = 0
    for value in _iteration_order([hash_bytes(name) for name in names]):
        combined = combine_hash(combined, value)
    return combined


def hash_bytes(content: bytes) -> int:
    """Return libstdc++'s 64-bit `_Hash_bytes` (MurmurHash64A with the seed of `std::hash`)."""
    value = (_SEED ^ (len(content) * _MULTIPLIER)) & _MASK
    end = len(content) - len(content) % _WORD_BYTES
    for at in range(0, end, _WORD_BYTES):
        word = int.from_bytes(content[at : at + _WORD_BYTES], "little") * _MULTIPLIER & _MASK
        word = (word ^ (word >> _SHIFT)) * _MULTIPLIER & _MASK
        value = (value ^ word) * _MULTIPLIER & _MASK
    if end < len(content):
        value = (value ^ int.from_bytes(content[end:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ (value >> _SHIFT)) * _MULTIPLIER & _MASK
    return value ^ (value >> _SHIFT)


def _iteration_order(values: Sequence[int]) -> list[int]:
    order: list[int] = []
    counts = iter(_BUCKET_COUNTS)
    limit, start = 0, 0
    while start < len(values):
        limit = next(counts)
        # The set is rehashed when full: its present order goes through the larger table.
        order = _insert_all([*order, *values[start:limit]], limit)
        start = limit
    return order


def _insert_all(values: Sequence[int], bucket_count: int) -> list[int]:
    """Return the chain of nodes after inserting values in this order.

    A value goes to the front of its bucket; a bucket that was empty goes to the front of all.
    """
    buckets: dict[int, list[int]] = {}
    for value in values:
        buckets.setdefault(value % bucket_count, []).append(value)
    return [value for bucket in reversed(buckets.values()) for value in reversed(bucket)]

"""Smallest and largest value of floating-point memory, from bit patterns alone.

As unsigned integers, the patterns of negative numbers lie above those of positive ones;
as signed integers, below; within a sign, a larger magnitude is a larger pattern, infinity
above every finite number and NaN above infinity. So one unsigned and one signed maximum
find the outermost values of both signs, NaN and infinity included, for every IEEE-like
type at the speed of an integer maximum.

Measured (AVX-512 server, 1 MiB in cache, one thread): two integer maxima of numpy 33
microseconds for any type; `torch.aminmax` 75 for float32, 113 for bfloat16.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ckptguard.model.report import TensorNumerics


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLayout:
    """How one floating-point type lies in its bits.

    Args:
        size_bytes: Of one value.
        mantissa_bits: Bits of the fraction.
        bias: Of the exponent.
        infinity: Magnitude of infinity; where a type has none, of its first NaN.
        has_infinity: Whether that magnitude is infinity.
        decoder: Of the type itself, or of a wider one whose upper bits it is.
        shift: Bits by which that one is wider.
    """

    size_bytes: int
    mantissa_bits: int
    bias: int
    infinity: int
    has_infinity: bool = True
    decoder: struct.Struct | None = None
    shift: int = 0
    sign: int = field(init=False)
    signed: np.dtype[np.signedinteger] = field(init=False)
    unsigned: np.dtype[np.unsignedinteger] = field(init=False)

    def __post_init__(self) -> None:
        """Derive the sign's pattern and the integers of the same width."""
        object.__setattr__(self, "sign", 1 << (8 * self.size_bytes - 1))
        object.__setattr__(self, "signed", np.dtype(f"<i{self.size_bytes}"))
        object.__setattr__(self, "unsigned", np.dtype(f"<u{self.size_bytes}"))

    def value_of(self, rank: int) -> float:
        """Return the number of a rank: its magnitude's pattern, with the number's sign."""
        magnitude = abs(rank)
        if self.decoder is not None:
            pattern = (magnitude << self.shift).to_bytes(self.decoder.size, "little")
            value: float = self.decoder.unpack(pattern)[0]
        else:
            value = self._small_value_of(magnitude)
        return -value if rank < 0 else value

    def _small_value_of(self, magnitude: int) -> float:
        if magnitude >= self.infinity:
            return math.inf if magnitude == self.infinity and self.has_infinity else math.nan
        fraction = magnitude & ((1 << self.mantissa_bits) - 1)
        exponent = magnitude >> self.mantissa_bits
        if exponent == 0:
            return fraction * 2.0 ** (1 - self.bias - self.mantissa_bits)
        return (1.0 + fraction / (1 << self.mantissa_bits)) * 2.0 ** (exponent - self.bias)


LAYOUTS: Final[Mapping[str, FloatLayout]] = {
    "float64": FloatLayout(
        size_bytes=8, mantissa_bits=52, bias=1023, infinity=0x7FF << 52, decoder=struct.Struct("<d")
    ),
    "float32": FloatLayout(
        size_bytes=4, mantissa_bits=23, bias=127, infinity=0xFF << 23, decoder=struct.Struct("<f")
    ),
    "bfloat16": FloatLayout(
        size_bytes=2, mantissa_bits=7, bias=127, infinity=0xFF << 7, decoder=struct.Struct("<f"), shift=16
    ),
    "float16": FloatLayout(
        size_bytes=2, mantissa_bits=10, bias=15, infinity=0x1F << 10, decoder=struct.Struct("<e")
    ),
    "float8_e5m2": FloatLayout(size_bytes=1, mantissa_bits=2, bias=15, infinity=0x1F << 2),
    "float8_e4m3fn": FloatLayout(size_bytes=1, mantissa_bits=3, bias=7, infinity=0x7F, has_infinity=False),
}
"""By torch's dtype name."""

_MEASURED_AS: Final[Mapping[str, FloatLayout]] = {
    **LAYOUTS,
    "complex128": LAYOUTS["float64"],
    "complex64": LAYOUTS["float32"],
    "complex32": LAYOUTS["float16"],
}
_largest, _smallest = np.maximum.reduce, np.minimum.reduce


def layout_of(dtype: str) -> FloatLayout | None:
    """Return the layout of a torch dtype's values, or of the parts of a complex one; None: not measured.

    Integers, booleans and packed sub-byte types have no pattern that is not a number;
    the `fnuz` and `e8m0fnu` types keep NaN where others keep -0, or have no sign.
    """
    return _MEASURED_AS.get(dtype)


def ranks_of(view: memoryview, layout: FloatLayout) -> tuple[int, int]:
    """Return the ranks of the smallest and the largest value.

    A rank is the magnitude's bit pattern with the number's sign; ranks order as numbers
    do, NaN outside of infinity.

    Args:
        view: Whole elements, at least one.
        layout: Their type's.
    """
    patterns = np.frombuffer(view, dtype=layout.unsigned)
    highest = int(_largest(patterns))
    highest_signed = int(_largest(patterns.view(layout.signed)))
    if highest >= layout.sign and highest_signed >= 0:
        return layout.sign - highest, highest_signed
    return _of_one_sign(patterns, highest, layout)


def _of_one_sign(
    patterns: npt.NDArray[np.unsignedinteger], highest: int, layout: FloatLayout
) -> tuple[int, int]:
    lowest = int(_smallest(patterns))
    if highest < layout.sign:
        return lowest, highest
    return layout.sign - highest, layout.sign - lowest


class NumericsMeter:
    """Collects the extremes of floating-point tensors, by FQN."""

    def __init__(self) -> None:
        self._ranks: dict[str, tuple[int, int, FloatLayout]] = {}

    def measure(self, fqn: str, dtype: str, view: memoryview) -> None:
        """Reduce some elements of a tensor.

        Args:
            fqn: The tensor.
            dtype: torch's name of its type; types without a layout are not measured.
            view: Their bytes; a last incomplete element is left out.
        """
        layout = layout_of(dtype)
        if layout is None:
            return
        if rest := len(view) % layout.size_bytes:
            view = view[:-rest]
        if view:
            self.include(fqn, *ranks_of(view, layout), layout)

    def include(self, fqn: str, lowest: int, highest: int, layout: FloatLayout) -> None:
        """Widen what is known of a tensor."""
        known = self._ranks.get(fqn)
        if known is not None:
            lowest, highest = min(lowest, known[0]), max(highest, known[1])
        self._ranks[fqn] = (lowest, highest, layout)

    def results(self) -> Mapping[str, TensorNumerics]:
        """Return what was measured."""
        return {fqn: _numerics(*ranks) for fqn, ranks in self._ranks.items()}


def _numerics(lowest: int, highest: int, layout: FloatLayout) -> TensorNumerics:
    magnitude = max(abs(lowest), abs(highest))
    values = layout.value_of(lowest), layout.value_of(highest)
    has_nan = math.isnan(values[0]) or math.isnan(values[1])
    return TensorNumerics(
        math.nan if has_nan else values[0],
        math.nan if has_nan else values[1],
        magnitude < layout.infinity,
        magnitude == 0,
        0 < magnitude < 1 << layout.mantissa_bits,
    )

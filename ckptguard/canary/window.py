"""Windows on the device: where verified payload lands, and where its numerics are taken.

Imports torch: only the canary child loads this module.
"""

import functools
import math
import mmap
from collections.abc import Mapping
from typing import Final

import torch

from ckptguard.formats.protocol import StoredTensor
from ckptguard.model.report import TensorNumerics

_AS_FLOAT32: Final = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)
"""aminmax is not implemented for these on CPU (torch 2.13); float32 holds each of their values."""

_MEASURED: Final = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


@functools.cache
def torch_dtype(name: str) -> torch.dtype | None:
    """Return torch's dtype of that name; None if this torch has none."""
    dtype = getattr(torch, name, None)
    return dtype if isinstance(dtype, torch.dtype) else None


def as_tensor(view: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """View bytes as a flat tensor without copying; a last incomplete element is left out."""
    count = len(view) // dtype.itemsize
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(view, dtype=dtype, count=count)


class Window:
    """Memory of one thread that tensors pass through on their way to the device.

    Attributes:
        target: Values just placed, on the device.
        meter: Measures them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_host = device.type == "cpu"
        self._host = memoryview(b"")
        self.target = torch.empty(0)
        self.meter = NumericsMeter()

    def host(self, length_bytes: int) -> memoryview:
        """Return page-aligned memory to read into; pinned where the device is not the CPU."""
        if len(self._host) < length_bytes:
            self._host = _host_memory(length_bytes, self._device)
        return self._host[:length_bytes]

    def place(self, view: memoryview, dtype: torch.dtype, stored: StoredTensor | None) -> None:
        """Make `target` the values in `view`, on the device.

        Args:
            view: Bytes of a whole storage, or of a piece of one.
            dtype: Their type.
            stored: How the tensor lies in its storage, where that is whole.
        """
        values = as_tensor(view, dtype)
        if stored is not None and not _is_plain(stored):
            values = values.as_strided(stored.sizes, stored.stride, stored.storage_offset)
        self.target = values if self._is_host else values.to(self._device)


@functools.lru_cache(maxsize=4096)
def _is_plain(stored: StoredTensor) -> bool:
    """Say whether the tensor's elements are exactly those of its storage, in order."""
    step = 1
    for size, stride in zip(reversed(stored.sizes), reversed(stored.stride), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return stored.storage_offset == 0


def _host_memory(length_bytes: int, device: torch.device) -> memoryview:
    if device.type == "cpu":
        return memoryview(mmap.mmap(-1, length_bytes))
    pinned = torch.empty(length_bytes, dtype=torch.uint8, pin_memory=True)
    return pinned.numpy().data


class NumericsMeter:
    """Collects the extremes of floating-point tensors, by FQN."""

    def __init__(self) -> None:
        self._extremes: dict[str, tuple[float, float, torch.dtype]] = {}

    def measure(self, fqn: str, values: torch.Tensor) -> None:
        """Reduce some elements of a tensor, on whatever device they are.

        Integers, booleans and packed sub-byte types are not measured: each of their bit
        patterns is a number.
        """
        if values.dtype not in _MEASURED:
            if values.dtype in _AS_FLOAT32:
                values = values.to(torch.float32)
            elif values.is_complex():
                values = torch.view_as_real(values)
            else:
                return
        if values.numel() == 0:
            return
        low, high = torch.aminmax(values)
        minimum, maximum = low.item(), high.item()
        if fqn in self._extremes:
            known_minimum, known_maximum, _ = self._extremes[fqn]
            minimum, maximum = _lowest(known_minimum, minimum), _highest(known_maximum, maximum)
        self._extremes[fqn] = (minimum, maximum, values.dtype)

    def results(self) -> Mapping[str, TensorNumerics]:
        """Return what was measured."""
        return {
            fqn: _numerics(low, high, _smallest_normal(dtype))
            for fqn, (low, high, dtype) in self._extremes.items()
        }


def _lowest(one: float, other: float) -> float:
    """Return the smaller; NaN if any is NaN."""
    return one if math.isnan(one) or one < other else other


def _highest(one: float, other: float) -> float:
    """Return the larger; NaN if any is NaN."""
    return one if math.isnan(one) or one > other else other


@functools.cache
def _smallest_normal(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny


def _numerics(low: float, high: float, tiny: float) -> TensorNumerics:
    is_zero = low == 0 and high == 0
    return TensorNumerics(
        minimum=low,
        maximum=high,
        is_finite=math.isfinite(low) and math.isfinite(high),
        is_zero=is_zero,
        is_denormal=not is_zero and -tiny < low and high < tiny,
    )

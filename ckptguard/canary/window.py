"""Windows on the device: where verified payload lands, and where its numerics are taken.

Imports torch: only the canary child loads this module.
"""

import functools
import mmap
from typing import Final

import torch

from ckptguard.canary.extremes import FloatLayout, NumericsMeter, layout_of
from ckptguard.formats.protocol import StoredTensor

_AS_FLOAT32: Final = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)
"""Types whose bit patterns do not order as IEEE's do; float32 holds each of their values."""

_SIGNED: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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
        self._bytes: memoryview | None = None
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
        self._bytes = view
        values = as_tensor(view, dtype)
        if stored is not None and not _is_plain(stored):
            values = values.as_strided(stored.sizes, stored.stride, stored.storage_offset)
            self._bytes = None
        self.target = values if self._is_host else values.to(self._device)

    def measure(self, fqn: str, dtype: str) -> None:
        """Take the numerics of the values just placed."""
        if self._is_host and self._bytes is not None and self.target.dtype not in _AS_FLOAT32:
            self.meter.measure(fqn, dtype, self._bytes)
        elif self.target.numel():
            _measure_tensor(self.meter, fqn, dtype, self.target)


def _measure_tensor(meter: NumericsMeter, fqn: str, dtype: str, values: torch.Tensor) -> None:
    """As `NumericsMeter.measure`, on whatever device the values are."""
    if values.dtype in _AS_FLOAT32:
        dtype, values = "float32", values.to(torch.float32)
    layout = layout_of(dtype)
    if layout is not None:
        if values.is_complex():
            values = torch.view_as_real(values)
        meter.include(fqn, *ranks_of_tensor(values, layout), layout)


def ranks_of_tensor(values: torch.Tensor, layout: FloatLayout) -> tuple[int, int]:
    """As `extremes.ranks_of`, by torch's integer reductions.

    torch reduces no unsigned integers: with the sign bit flipped, signed ones order as
    unsigned ones do.

    Args:
        values: At least one; of the layout's type.
        layout: Bits of the type.
    """
    signed = values.contiguous().view(_SIGNED[values.itemsize])
    flipped = signed ^ (-layout.sign)
    highest, highest_signed = int(flipped.amax()) + layout.sign, int(signed.amax())
    if highest >= layout.sign and highest_signed >= 0:
        return layout.sign - highest, highest_signed
    lowest = int(flipped.amin()) + layout.sign
    return (lowest, highest) if highest < layout.sign else (layout.sign - highest, layout.sign - lowest)


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

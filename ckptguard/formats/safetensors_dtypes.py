"""safetensors' dtypes, as torch names them."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from ckptguard.errors import FormatError

_MAX_ELEMENTS: Final = 1 << 64
_BITS_PER_BYTE: Final = 8


class _Dtype(NamedTuple):
    torch_name: str
    bits: int


# Source: `Dtype::bitsize` in safetensors/src/tensor.rs (0.8) and torch's names in
# safetensors/torch.py and bindings/python/src/lib.rs. torch has no 6-bit float.
_DTYPES: Final = {
    "BOOL": _Dtype("bool", 8),
    "F4": _Dtype("float4_e2m1fn", 4),
    "F6_E2M3": _Dtype("float6_e2m3fn", 6),
    "F6_E3M2": _Dtype("float6_e3m2fn", 6),
    "U8": _Dtype("uint8", 8),
    "I8": _Dtype("int8", 8),
    "F8_E5M2": _Dtype("float8_e5m2", 8),
    "F8_E4M3": _Dtype("float8_e4m3fn", 8),
    "F8_E8M0": _Dtype("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": _Dtype("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": _Dtype("float8_e5m2fnuz", 8),
    "I16": _Dtype("int16", 16),
    "U16": _Dtype("uint16", 16),
    "F16": _Dtype("float16", 16),
    "BF16": _Dtype("bfloat16", 16),
    "I32": _Dtype("int32", 32),
    "U32": _Dtype("uint32", 32),
    "F32": _Dtype("float32", 32),
    "C64": _Dtype("complex64", 64),
    "F64": _Dtype("float64", 64),
    "I64": _Dtype("int64", 64),
    "U64": _Dtype("uint64", 64),
}
_COULD_BE_A_DTYPE: Final = re.compile(r"[A-Z][A-Z0-9_]{1,23}")


def torch_dtype_of(name: object, shape: Sequence[int], *, length_bytes: int) -> tuple[str, tuple[int, ...]]:
    """Return torch's dtype name and shape of a tensor, after holding them against its bytes.

    A name that is none of safetensors 0.8 but has the form of one is returned as it is,
    in capitals: it may be newer than we are, so nothing can be said of its length.

    Args:
        name: The header's `dtype`.
        shape: The header's `shape`, in elements of that dtype.
        length_bytes: The length of the header's `data_offsets`.

    Returns:
        dtype and sizes in its elements. `F4` becomes `float4_e2m1fn_x2` with half as many
        columns, as torch stores it; with an odd number of columns it stays `float4_e2m1fn`.

    Raises:
        FormatError: No dtype at all, or dtype and shape demand another length.
    """
    known = _DTYPES.get(name) if isinstance(name, str) else None
    if known is None:
        if isinstance(name, str) and _COULD_BE_A_DTYPE.fullmatch(name):
            return name, tuple(shape)
        msg = f"dtype {str(name)[:40]!r} is none"
        raise FormatError(msg)
    bits = _num_elements(shape) * known.bits
    if bits != length_bytes * _BITS_PER_BYTE:
        msg = f"dtype {name} and shape {list(shape[:8])} need {bits} bits, it has {length_bytes} bytes"
        raise FormatError(msg)
    if name == "F4" and shape and shape[-1] % 2 == 0:
        return "float4_e2m1fn_x2", (*shape[:-1], shape[-1] // 2)
    return known.torch_name, tuple(shape)


def _num_elements(shape: Sequence[int]) -> int:
    """Multiply, and stop where every reader's 64-bit count overflows: before any zero that follows."""
    count = 1
    for size in shape:
        count *= size
        if count >= _MAX_ELEMENTS:
            msg = "its shape has more than 2**64 elements"
            raise FormatError(msg)
    return count

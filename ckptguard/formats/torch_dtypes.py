"""Every torch dtype by name, with the size of its elements."""

from typing import Final

ITEMSIZES: Final[dict[str, int]] = {
    **dict.fromkeys(("bool", "uint8", "int8", "qint8", "quint8", "quint4x2", "quint2x4"), 1),
    **dict.fromkeys((f"uint{bits}" for bits in range(1, 8)), 1),
    **dict.fromkeys((f"int{bits}" for bits in range(1, 8)), 1),
    **dict.fromkeys(("bits8", "bits1x8", "bits2x4", "bits4x2"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16", "bits16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32", "qint32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes per element as `torch.dtype.itemsize` says; sub-byte dtypes are stored in whole bytes.

Source: c10/core/ScalarType.h
"""

STORAGE_DTYPES: Final[dict[str, str]] = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "QInt32Storage": "qint32",
    "QInt8Storage": "qint8",
    "QUInt2x4Storage": "quint2x4",
    "QUInt4x2Storage": "quint4x2",
    "QUInt8Storage": "quint8",
    "ShortStorage": "int16",
    "UntypedStorage": "uint8",
}
"""Storage classes that a pickle may name, and the dtype of the elements that it counts.

Source: torch/storage.py `_dtype_to_storage_type_map`; untyped storages are counted in bytes.
"""

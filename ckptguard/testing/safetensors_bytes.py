"""safetensors files from plain bytes, right ones and wrong ones, without the library.

Format: 8 bytes little-endian header length, JSON header, then the tensors' bytes.
Source: huggingface/safetensors README, "Format".
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ALIGNMENT: Final = 8
INDEX_NAME: Final = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTensor:
    """A tensor as safetensors sees it.

    Args:
        dtype: safetensors' name, e.g. `F32`.
        shape: In elements.
        data: Row-major, little-endian.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def floats(*values: float) -> RawTensor:
    """Return a 1-D `F32` tensor."""
    return RawTensor(dtype="F32", shape=(len(values),), data=struct.pack(f"<{len(values)}f", *values))


def build_header(tensors: Mapping[str, RawTensor]) -> dict[str, Any]:
    """Return the header of these tensors, stored in this order without gaps."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    return header


def encode(header: Mapping[str, Any], data: bytes) -> bytes:
    """Return a file with this header, right or wrong, before these bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text + data


def decode(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and data of a file that is right."""
    whole = path.read_bytes()
    (length,) = struct.unpack_from("<Q", whole)
    header: dict[str, Any] = json.loads(whole[8 : 8 + length])
    return header, whole[8 + length :]


def write_file(path: Path, tensors: Mapping[str, RawTensor]) -> None:
    """Write one right file."""
    data = b"".join(tensor.data for tensor in tensors.values())
    path.write_bytes(encode(build_header(tensors), data))


def write_sharded(folder: Path, shards: Mapping[str, Mapping[str, RawTensor]]) -> None:
    """Write a sharded model as Hugging Face does: files and an index that maps names to files."""
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for file, tensors in shards.items():
        write_file(folder / file, tensors)
        weight_map |= dict.fromkeys(tensors, file)
    total = sum(len(tensor.data) for tensors in shards.values() for tensor in tensors.values())
    write_index(folder, weight_map, total_bytes=total)


def write_index(folder: Path, weight_map: Mapping[str, str], *, total_bytes: int) -> None:
    """Write the index of a sharded model."""
    index = {"metadata": {"total_size": total_bytes}, "weight_map": dict(weight_map)}
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n")

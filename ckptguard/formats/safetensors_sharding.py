"""Where a file's tensors lie in the whole ones: torch's `DCP_SHARDING_INFO` annotation.

Source: torch 2.13 distributed/checkpoint/filesystem.py `_write_files_from_queue` (written),
hf_storage.py `HuggingFaceStorageReader.read_metadata` (read).
"""

from typing import Any, Final

from ckptguard.errors import FormatError
from ckptguard.formats.safetensors_faults import bounded, malformed
from ckptguard.formats.safetensors_header import Header, HeaderTensor
from ckptguard.formats.safetensors_json import parse_json_object
from ckptguard.model.finding import Finding

_SHARDING_KEY: Final = "DCP_SHARDING_INFO"
_OFFSETS_KEY: Final = "saved_offsets"


def read_saved_offsets(
    header: Header, *, path: str
) -> tuple[dict[str, tuple[int, ...]], tuple[Finding, ...]]:
    """Return the first element of each slice of a file, in elements of the whole tensor.

    Args:
        header: Of the file.
        path: For the findings.

    Returns:
        Offsets by tensor name, and a `header_malformed` for each tensor without usable ones:
        torch's reader demands them of every tensor once the annotation is there. Both are
        empty for a file of whole tensors.
    """
    text = header.annotations.get(_SHARDING_KEY)
    if not text:
        return {}, ()
    try:
        entries = parse_json_object(text)
    except FormatError as error:
        return {}, (malformed(path, f"{_SHARDING_KEY}: {error}"),)
    offsets: dict[str, tuple[int, ...]] = {}
    findings: list[Finding] = []
    for tensor in header.tensors:
        try:
            offsets[tensor.fqn] = _offsets(entries, tensor)
        except FormatError as error:
            findings.append(malformed(path, f"{_SHARDING_KEY}: {tensor.fqn}: {error}", fqn=tensor.fqn))
    return offsets, bounded(findings, path)


def _offsets(entries: dict[str, Any], tensor: HeaderTensor) -> tuple[int, ...]:
    entry = entries.get(tensor.fqn)
    saved = entry.get(_OFFSETS_KEY) if isinstance(entry, dict) else None
    if not isinstance(saved, list) or len(saved) != len(tensor.sizes):
        msg = f"no {_OFFSETS_KEY} of {len(tensor.sizes)} dimensions"
        raise FormatError(msg)
    if not all(type(offset) is int and 0 <= offset < 1 << 63 for offset in saved):
        msg = f"{_OFFSETS_KEY} are not whole numbers"
        raise FormatError(msg)
    return tuple(saved)

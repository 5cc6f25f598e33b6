"""The header of a safetensors file, read strictly.

A file is 8 bytes of little-endian header length, a JSON object, then the tensors'
bytes, without gaps or overlaps, to the last byte. The format has no checksum, so
this arithmetic is all that the file itself can prove.

Source: huggingface/safetensors README "Format", safetensors/src/tensor.rs (0.8).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ckptguard.errors import FormatError
from ckptguard.formats.safetensors_dtypes import torch_dtype_of
from ckptguard.formats.safetensors_faults import bounded, changed, long, malformed, short
from ckptguard.formats.safetensors_json import parse_json_object
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import RangeReader, Store

LENGTH_FIELD_BYTES: Final = 8
ANNOTATIONS_KEY: Final = "__metadata__"
LIBRARY_MAX_HEADER_BYTES: Final = 100_000_000  # MAX_HEADER_SIZE in safetensors/src/tensor.rs
_FIRST_READ_BYTES: Final = 64 << 10


class HeaderTensor(NamedTuple):
    """One tensor of a file.

    Args:
        fqn: Name.
        dtype: torch's name without prefix; the file's own where torch has none.
        sizes: In elements of `dtype` (`F4` counts pairs, as torch does).
        offset: First byte, from the start of the file.
        length_bytes: Bytes stored.
    """

    fqn: str
    dtype: str
    sizes: tuple[int, ...]
    offset: int
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What one file says of itself.

    Args:
        tensors: Sorted by offset; contiguous from `data_offset` to `length_bytes`.
        annotations: The free texts under `__metadata__`.
        data_offset: First byte after the header.
        length_bytes: The one length that the file may have.
    """

    tensors: tuple[HeaderTensor, ...]
    annotations: Mapping[str, str]
    data_offset: int
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderReading:
    """A header, or why there is none, and what else was found.

    Args:
        header: None where the file cannot be understood; `findings` then say why.
        findings: `header_malformed`, `short_shard`, `long_shard` (errors);
            `unknown_layout` for a dtype of a newer format, `limit_exceeded`,
            `changed_during_check` (unknown); `needs_other_reader` (warning) for a
            dtype that torch lacks.
    """

    header: Header | None
    findings: tuple[Finding, ...] = ()


def read_header(store: Store, listing: Listing, path: str, limits: Limits) -> HeaderReading:
    """Read and check the header of one listed file.

    Args:
        store: Where the file is.
        listing: Says the file's length; `path` is one of its files.
        path: Relative to the listing; findings name it so.
        limits: `max_header_bytes` is checked before anything is allocated.

    Raises:
        StoreError: The store did not deliver.
    """
    length_bytes = listing.files[path].length_bytes
    with store.open(listing.in_store(path)) as reader:
        first = _read(reader, 0, min(length_bytes, _FIRST_READ_BYTES))
        if len(first) < min(length_bytes, _FIRST_READ_BYTES):
            return _without_header(changed(path, length_bytes))
        problem = check_length_field(first, path=path, length_bytes=length_bytes, limits=limits)
        if problem is not None:
            return _without_header(problem)
        end = LENGTH_FIELD_BYTES + _length_field(first)
        raw = first[:end]
        if len(raw) < end:
            raw += _read(reader, len(raw), end - len(raw))
    if len(raw) < end:
        return _without_header(changed(path, length_bytes))
    return parse_header(raw, path=path, length_bytes=length_bytes)


def check_length_field(first: bytes, *, path: str, length_bytes: int, limits: Limits) -> Finding | None:
    """Report a header that cannot be inside a file of this length, or is beyond the limit.

    Args:
        first: The file's first bytes, 8 or the whole file.
        path: For the finding.
        length_bytes: Of the file.
        limits: `max_header_bytes`.
    """
    if len(first) < LENGTH_FIELD_BYTES:
        return short(path, expected=f">= {LENGTH_FIELD_BYTES}", observed=length_bytes)
    header_bytes = _length_field(first)
    needed = LENGTH_FIELD_BYTES + header_bytes
    if header_bytes > LIBRARY_MAX_HEADER_BYTES and needed > length_bytes:
        return malformed(
            path,
            "the length field names a header larger than the file and than any reader takes",
            offset=0,
            expected=f"<= {length_bytes - LENGTH_FIELD_BYTES}",
            observed=str(header_bytes),
        )
    if needed > length_bytes:
        return short(path, expected=f">= {needed}", observed=length_bytes)
    if header_bytes > limits.max_header_bytes:
        return Finding(
            code=FindingCode.LIMIT_EXCEEDED,
            check=CheckName.COVERAGE,
            severity=Severity.UNKNOWN,
            message=f"{path}: its header is larger than the limit",
            file=path,
            expected=f"<= {limits.max_header_bytes}",
            observed=str(header_bytes),
        )
    return None


def parse_header(raw: bytes, *, path: str, length_bytes: int) -> HeaderReading:
    """Check length field and header of a file against each other and the file's length.

    Args:
        raw: Length field and whole header.
        path: For the findings.
        length_bytes: Of the file.
    """
    try:
        entries = _parse_object(raw[LENGTH_FIELD_BYTES:])
        annotations = _annotations(entries.pop(ANNOTATIONS_KEY, None))
    except FormatError as error:
        return _without_header(malformed(path, str(error), offset=LENGTH_FIELD_BYTES))
    tensors, findings = _tensors(entries, path=path, data_offset=len(raw))
    if not findings:
        findings = list(_check_contiguous(tensors, path=path, data_offset=len(raw)))
    if findings:
        return HeaderReading(header=None, findings=bounded(findings, path))
    header = Header(
        tensors=tuple(tensors),
        annotations=annotations,
        data_offset=len(raw),
        length_bytes=max((tensor.offset + tensor.length_bytes for tensor in tensors), default=len(raw)),
    )
    doubts = [*_check_length(header, path, length_bytes), *_check_dtypes(tensors, path)]
    return HeaderReading(header=header, findings=bounded(doubts, path))


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        return parse_json_object(raw.decode())
    except UnicodeDecodeError as error:
        msg = f"the header is not UTF-8 at its byte {error.start}"
        raise FormatError(msg) from error
    except FormatError as error:
        msg = f"the header is {error}" if str(error).startswith(("not", "a ")) else f"header: {error}"
        raise FormatError(msg) from error


def _annotations(value: object) -> Mapping[str, str]:
    if value is None:
        return MappingProxyType({})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        msg = f"{ANNOTATIONS_KEY} does not map texts to texts"
        raise FormatError(msg)
    return MappingProxyType(value)


def _tensors(
    entries: Mapping[str, Any], *, path: str, data_offset: int
) -> tuple[list[HeaderTensor], list[Finding]]:
    """Return the tensors, sorted by offset, and one finding for each that cannot be one."""
    tensors: list[HeaderTensor] = []
    findings: list[Finding] = []
    for fqn, entry in entries.items():
        try:
            tensors.append(_tensor(fqn, entry, data_offset))
        except FormatError as error:
            name = _printable(fqn)
            findings.append(malformed(path, f"{name}: {error}", fqn=name))
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.length_bytes))
    return tensors, findings


def _tensor(fqn: str, entry: object, data_offset: int) -> HeaderTensor:
    """Turn one entry into a tensor.

    Raises:
        FormatError: A field is missing, of another type, or contradicts another one.
    """
    if _printable(fqn) != fqn:
        msg = "its name is not Unicode text"
        raise FormatError(msg)
    if not isinstance(entry, dict):
        msg = "not an object"
        raise FormatError(msg)
    shape = _naturals(entry.get("shape"), "shape")
    offsets = _naturals(entry.get("data_offsets"), "data_offsets")
    if len(offsets) != 2 or offsets[1] < offsets[0]:  # noqa: PLR2004 - begin and end
        msg = f"data_offsets {list(offsets[:4])} is not a range"
        raise FormatError(msg)
    length_bytes = offsets[1] - offsets[0]
    dtype, sizes = torch_dtype_of(entry.get("dtype"), shape, length_bytes=length_bytes)
    return HeaderTensor(fqn, dtype, sizes, data_offset + offsets[0], length_bytes)


def _naturals(value: object, field: str) -> tuple[int, ...]:
    # `type` and not `isinstance`: True is an int to Python and an error to every safetensors reader.
    if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
        msg = f"{field} is not a list of whole numbers"
        raise FormatError(msg)
    if any(number >> 63 for number in value):
        msg = f"{field} holds a number beyond 63 bits"
        raise FormatError(msg)
    return tuple(value)


def _check_contiguous(tensors: Iterable[HeaderTensor], *, path: str, data_offset: int) -> Iterator[Finding]:
    """Report every gap and overlap; readers take neither."""
    cursor = data_offset
    for tensor in tensors:
        if tensor.offset != cursor:
            kind = "overlaps what is before it" if tensor.offset < cursor else "leaves a gap before it"
            yield malformed(
                path,
                f"{tensor.fqn} {kind}",
                fqn=tensor.fqn,
                offset=tensor.offset,
                expected=f"begins at {cursor}",
                observed=f"begins at {tensor.offset}",
            )
        cursor = max(cursor, tensor.offset + tensor.length_bytes)


def _check_length(header: Header, path: str, length_bytes: int) -> Iterator[Finding]:
    if length_bytes < header.length_bytes:
        yield short(path, expected=str(header.length_bytes), observed=length_bytes)
    if length_bytes > header.length_bytes:
        yield long(path, expected=header.length_bytes, observed=length_bytes)


def _check_dtypes(tensors: Iterable[HeaderTensor], path: str) -> Iterator[Finding]:
    for tensor in tensors:
        if tensor.dtype.isupper():  # kept as the file has it: no dtype of safetensors 0.8
            yield Finding(
                code=FindingCode.UNKNOWN_LAYOUT,
                check=CheckName.COVERAGE,
                severity=Severity.UNKNOWN,
                message=f"{path}: {tensor.fqn} has a dtype that this version does not know",
                file=path,
                fqn=tensor.fqn,
                expected="a dtype of safetensors 0.8",
                observed=tensor.dtype,
            )
        elif tensor.dtype.startswith("float6") or tensor.dtype == "float4_e2m1fn":
            yield Finding(
                code=FindingCode.NEEDS_OTHER_READER,
                check=CheckName.LOAD,
                severity=Severity.WARNING,
                message=f"{path}: torch cannot hold {tensor.fqn}",
                file=path,
                fqn=tensor.fqn,
                observed=f"{tensor.dtype} {list(tensor.sizes)}",
            )


def _read(reader: RangeReader, offset: int, count: int) -> bytes:
    buffer = bytearray(count)
    got = reader.readinto(memoryview(buffer), offset)
    return bytes(buffer[:got])


def _length_field(first: bytes) -> int:
    value: int = struct.unpack_from("<Q", first)[0]
    return value


def _printable(text: str) -> str:
    """Replace lone surrogates, which JSON escapes can smuggle in and no output can take."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _without_header(finding: Finding) -> HeaderReading:
    return HeaderReading(header=None, findings=(finding,))

"""From what was seen in a torch.save zip to the problems it has: pure comparison with the rendering."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ckptguard.formats.protocol import CrcState, Problem
from ckptguard.formats.torch_zip_names import hash_names
from ckptguard.formats.torch_zip_render import (
    CENTRAL_CRC_OFFSET,
    HASH_DIGITS,
    SERIALIZATION_ID,
    Record,
    Segment,
    align_payload,
    fingerprint,
    render_directory,
)
from ckptguard.model.finding import FindingCode

_MAX_EVIDENCE_BYTES: Final = 32
_UINT64_END: Final = 1 << 64
_MAX_ALTERED_DIGITS: Final = 8

# What torch.save writes into records that no CRC covers where CRCs are off.
# Source: torch/serialization.py `_save`; kMinProducedFileFormatVersion in caffe2/serialize/versions.h
_FIXED_CONTENTS: Final = {
    b".format_version": (b"1",),
    b"byteorder": (b"little", b"big"),
    b"version": (b"3\n",),
}


class Seen(NamedTuple):
    """One record as it passed.

    Args:
        name: Within the archive.
        offset: Of its local header in the item.
        payload_offset: Of its content in the item.
        length_bytes: Of its content.
        stored_crc: As its descriptor says; 0 without one.
        computed_crc: Of the content.
        lead: First 8 bytes of the content.
        content: All of it, except for `data.pkl` and storages.
    """

    name: bytes
    offset: int
    payload_offset: int
    length_bytes: int
    stored_crc: int
    computed_crc: int
    lead: bytes
    content: bytes = b""


class Settled(NamedTuple):
    """Records with the CRC that all structure is rendered from, and what spoke against it."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]


def find_crc_state(seen: Sequence[Seen]) -> CrcState:
    """Say whether the writer computed CRCs, by majority, so that one altered field does not decide."""
    absent = sum(record.stored_crc == 0 != record.computed_crc for record in seen)
    present = sum(record.stored_crc == record.computed_crc != 0 for record in seen)
    return CrcState.ABSENT if absent > present else CrcState.CHECKED


def settle_crcs(seen: Sequence[Seen], central_crcs: Sequence[int], state: CrcState) -> Settled:
    """Decide, where content and stored CRC differ, which of them was altered.

    Each CRC is stored twice. Where both copies agree against the content, the content
    was altered; where one agrees with the content, the other copy was.

    Args:
        seen: All records, in order.
        central_crcs: Those of the central directory, in order; shorter where it is missing.
        state: Whether there are CRCs.
    """
    records, problems = [], []
    for index, record in enumerate(seen):
        true_crc = 0 if state is CrcState.ABSENT else record.computed_crc
        central_crc = central_crcs[index] if index < len(central_crcs) else None
        crc = true_crc
        if record.stored_crc != true_crc:
            is_content_sound = state is CrcState.ABSENT or central_crc == true_crc
            problems.append(
                _altered_descriptor(record, true_crc) if is_content_sound else _bad_content(record)
            )
            crc = true_crc if is_content_sound else record.stored_crc
        records.append(Record(record.name, record.offset, record.length_bytes, crc, record.lead))
    return Settled(tuple(records), tuple(problems))


def find_content_problems(
    seen: Sequence[Seen], records: Sequence[Record], *, state: CrcState, alignment: int
) -> Iterator[Problem]:
    """Yield small records whose content does not follow from the rest of the item."""
    for index, record in enumerate(seen):
        if state is CrcState.CHECKED and record.stored_crc != record.computed_crc:
            continue
        expected = _expected_content(record, records[:index], state=state, alignment=alignment)
        if expected is not None and record.content != expected:
            yield differ(record.name, "content", record.payload_offset, expected, record.content)


def find_misplaced(seen: Sequence[Seen], *, archive: bytes, alignment: int) -> Iterator[Problem]:
    """Yield records whose content does not stand where this alignment would put it."""
    for record in seen:
        expected = align_payload(
            archive + record.name,
            offset=record.offset,
            length_bytes=record.length_bytes,
            alignment=alignment,
        )
        if record.payload_offset != expected:
            yield malformed(
                record.name,
                "the content is not aligned",
                record.payload_offset,
                expected,
                record.payload_offset,
            )


def find_directory_problems(
    archive: bytes, records: Sequence[Record], *, offset: int, observed: bytes
) -> Iterator[Problem]:
    """Yield where the bytes after the last record are not the rendered ones."""
    for segment in render_directory(archive, records, offset=offset):
        start = segment.offset - offset
        part = observed[start : start + len(segment.rendered)]
        if part != segment.rendered:
            yield differ(segment.record, segment.part, segment.offset, segment.rendered, part)


def read_central_crcs(segments: Sequence[Segment], observed: bytes) -> list[int]:
    """Return the CRC fields of the central directory, found by where each entry must stand."""
    crcs = []
    for segment in segments:
        at = segment.offset - segments[0].offset + CENTRAL_CRC_OFFSET
        if segment.record is not None and at + 4 <= len(observed):
            crcs.append(int.from_bytes(observed[at : at + 4], "little"))
    return crcs


def differ(record: bytes | None, part: str, offset: int, expected: bytes, observed: bytes) -> Problem:
    """Describe the first place where two byte strings part, with both as hex."""
    shared = next(
        (at for at, (left, right) in enumerate(zip(expected, observed, strict=False)) if left != right),
        min(len(expected), len(observed)),
    )
    end = _last_difference(expected, observed, shared)
    shown = min(end, shared + _MAX_EVIDENCE_BYTES)
    name = to_text(record)
    return Problem(
        code=FindingCode.ZIP_MALFORMED,
        message=f"{part}{f' of {name}' if name else ''} is not what torch writes",
        record=name,
        offset=offset + shared,
        length_bytes=end - shared,
        expected=expected[shared:shown].hex(),
        observed=observed[shared:shown].hex(),
    )


def malformed(
    record: bytes | None, message: str, offset: int, expected: object = None, observed: object = None
) -> Problem:
    """Describe a structural fault that is not a difference of bytes."""
    name = to_text(record)
    return Problem(
        code=FindingCode.ZIP_MALFORMED,
        message=f"{name}: {message}" if name else message,
        record=name,
        offset=offset,
        expected=None if expected is None else str(expected),
        observed=None if observed is None else str(observed),
    )


def to_text(name: bytes | None) -> str | None:
    """Return a record's name for a person; bytes that are no UTF-8 are escaped."""
    return None if name is None else name.decode("utf-8", "backslashreplace")


def _last_difference(expected: bytes, observed: bytes, shared: int) -> int:
    if len(expected) != len(observed):
        return max(len(expected), len(observed))
    return next(at for at in range(len(expected), shared, -1) if expected[at - 1] != observed[at - 1])


def _expected_content(
    record: Seen, before: Sequence[Record], *, state: CrcState, alignment: int
) -> bytes | None:
    if record.name == SERIALIZATION_ID:
        return _expected_names_hash(record, before, state) + b"%020d" % fingerprint(before)
    if record.name == b".storage_alignment":
        return str(alignment).encode()
    if state is CrcState.ABSENT and record.name in _FIXED_CONTENTS:
        allowed = _FIXED_CONTENTS[record.name]
        return record.content if record.content in allowed else allowed[0]
    return None


def _expected_names_hash(record: Seen, before: Sequence[Record], state: CrcState) -> bytes:
    """Return what the first half of the serialization id should be.

    It depends on the writer's C++ standard library, so with CRCs, which cover it, it is
    taken as it is. Without, it must be libstdc++'s, or so different that it is another
    library's and not an altered one.
    """
    observed = record.content[:HASH_DIGITS]
    is_number = len(observed) == HASH_DIGITS and observed.isdigit() and int(observed) < _UINT64_END
    rebuilt = (
        hash_names([other.name for other in before]) if state is CrcState.ABSENT or not is_number else None
    )
    expected = observed if rebuilt is None else b"%020d" % rebuilt
    num_altered = sum(left != right for left, right in zip(expected, observed, strict=False))
    is_other_library = is_number and num_altered > _MAX_ALTERED_DIGITS
    return observed if is_other_library else expected


def _bad_content(record: Seen) -> Problem:
    return Problem(
        code=FindingCode.CRC_MISMATCH,
        message=f"the content of {to_text(record.name)} does not match its CRC-32",
        record=to_text(record.name),
        offset=record.payload_offset,
        length_bytes=record.length_bytes,
        expected=f"{record.stored_crc:08x}",
        observed=f"{record.computed_crc:08x}",
    )


def _altered_descriptor(record: Seen, true_crc: int) -> Problem:
    return differ(
        record.name,
        "data descriptor",
        record.payload_offset + record.length_bytes + 4,
        true_crc.to_bytes(4, "little"),
        record.stored_crc.to_bytes(4, "little"),
    )

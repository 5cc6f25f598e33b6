"""The walk through a torch.save zip: locate each record as it passes, and note what was seen."""

from collections.abc import Generator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar

from zlib_ng.zlib_ng import crc32

from ckptguard.errors import FormatError, LimitExceededError
from ckptguard.formats.pickle_reader import PickleError
from ckptguard.formats.protocol import Payload, Problem
from ckptguard.formats.torch_item_pickle import ItemPickle, StoredStorage, find_pickle_end, read_item_pickle
from ckptguard.formats.torch_zip_ends import find_content_end, find_slack
from ckptguard.formats.torch_zip_facts import Seen, differ, find_misplaced, malformed, to_text
from ckptguard.formats.torch_zip_render import (
    CENTRAL_MAGIC,
    DEFAULT_ALIGNMENT,
    LOCAL_FIXED_BYTES,
    SERIALIZATION_ID,
    Record,
    Segment,
    align_payload,
    render_descriptor,
    render_directory,
    render_local_header,
)
from ckptguard.formats.torch_zip_tape import PastEndError, Tape
from ckptguard.model.finding import FindingCode

_PICKLE: Final = b"data.pkl"
_STORAGE_ALIGNMENT: Final = b".storage_alignment"
# Records besides the pickle and the storages. Source: torch/serialization.py `_save`
_PLAIN: Final = frozenset(
    {b".format_version", _STORAGE_ALIGNMENT, b"byteorder", b"version", b".data/version", SERIALIZATION_ID}
)
_MAX_PLAIN_BYTES: Final = 256
_MAX_NAME_BYTES: Final = 4096
_HEADER_WINDOW_BYTES: Final = 96
_MAX_ALIGNMENT_DIGITS: Final = 5
_FIRST_WINDOW_BYTES: Final = 512
_WINDOW_GROWTH: Final = 4
_LEAD_BYTES: Final = 8
_MAX_DESCRIPTOR_BYTES: Final = 24
_LENGTHS: Final = Struct("<HH")
_LENGTHS_OFFSET: Final = 26

_T = TypeVar("_T")
Walking: TypeAlias = Generator[Payload | None, None, _T]
"""A coroutine that yields payload as it passes, and None while bytes are missing."""


class Directory(NamedTuple):
    """The bytes after the last record, and what they would be with the CRCs of the descriptors."""

    offset: int
    observed: bytes
    segments: list[Segment]
    is_as_rendered: bool


class LostTrackError(Exception):
    """What follows cannot be located.

    Attributes:
        problem: Why.
    """

    def __init__(self, problem: Problem) -> None:
        """Carry the problem."""
        super().__init__(problem.message)
        self.problem = problem


class ZipWalk:
    """One walk. `run` is the coroutine; the rest is what it noted so far.

    Args:
        tape: The bytes.
        max_pickle_bytes: Largest `data.pkl` to hold.
        is_zero_tail_allowed: Zero bytes may follow the zip.

    Attributes:
        seen: Records in order.
        problems: Where headers and descriptors differ from the rendered ones, and where
            the walk ended before its time.
        pickle: What `data.pkl` says; None if it was not read.
        globals: What unpickling would name, as far as `data.pkl` was read.
        directory: What follows the records; None if they were not walked to the end.
        archive: Name of the archive, with its `/`.
        alignment: As `.storage_alignment` says; None without a believable one.
    """

    def __init__(self, tape: Tape, *, max_pickle_bytes: int, is_zero_tail_allowed: bool) -> None:
        self.seen: list[Seen] = []
        self.problems: list[Problem] = []
        self.pickle: ItemPickle | None = None
        self.globals: frozenset[str] = frozenset()
        self.directory: Directory | None = None
        self.archive = b""
        self.alignment: int | None = None
        self.has_odd_padding = False
        self._tape = tape
        self._max_pickle_bytes = max_pickle_bytes
        self._is_zero_tail_allowed = is_zero_tail_allowed
        self._storages: dict[bytes, StoredStorage] = {}

    def run(self) -> Walking[None]:
        """Walk from the first byte to the last."""
        try:
            yield from self._records()
            yield from self._end()
            yield from self._tail()
        except LostTrackError as lost:
            self._lose_track(lost.problem)
        except PastEndError:
            self._lose_track(malformed(None, "the item ends inside a record", self._tape.length_bytes))

    def _lose_track(self, problem: Problem) -> None:
        """Note why the walk ended, except where that only follows from an altered pickle."""
        pickle = self.seen[0] if self.seen else None
        if pickle is None or pickle.stored_crc in (0, pickle.computed_crc):
            self.problems.append(problem)
            return
        end = pickle.payload_offset + pickle.length_bytes
        self.problems = [known for known in self.problems if (known.offset or 0) < end]
        del self.seen[1:]

    # -- records

    def _records(self) -> Walking[None]:
        yield from self._pickle()
        while self.seen[-1].name != SERIALIZATION_ID:
            name = yield from self._peek_name()
            if name is None:
                return
            if name in self._storages:
                yield from self._storage(name)
            elif name in _PLAIN and all(name != seen.name for seen in self.seen):
                yield from self._plain(name)
            else:
                raise LostTrackError(malformed(name, "unexpected or repeated record", self._tape.offset))

    def _pickle(self) -> Walking[None]:
        _, name = yield from self._peek_full_name()
        if not name.endswith(b"/" + _PICKLE):
            first = to_text(name[: len(_PICKLE) + 64])
            raise LostTrackError(malformed(None, "no torch.save zip begins so", 0, "…/data.pkl", first))
        self.archive = name.removesuffix(_PICKLE)
        seen, content = yield from self._held_record(_PICKLE, limit_bytes=self._max_pickle_bytes)
        yield from self._take_descriptor(seen)
        self._read_pickle(content)

    def _read_pickle(self, content: bytes) -> None:
        try:
            self.pickle = read_item_pickle(content)
        except FormatError as error:
            self.globals = error.globals if isinstance(error, PickleError) else frozenset()
            raise LostTrackError(_unreadable_pickle(self.seen[0], error)) from error
        self.globals = self.pickle.globals
        self._storages = {f"data/{key}".encode(): storage for key, storage in self.pickle.storages.items()}

    def _plain(self, name: bytes) -> Walking[None]:
        seen, content = yield from self._held_record(name, limit_bytes=_MAX_PLAIN_BYTES)
        yield from self._take_descriptor(seen._replace(content=content))
        if name == _STORAGE_ALIGNMENT:
            self.alignment = self._believe_alignment(content)

    def _believe_alignment(self, content: bytes) -> int:
        """Take an alignment only if it explains where the content of every record so far stands."""
        alignment = int(content) if content.isdigit() and len(content) <= _MAX_ALIGNMENT_DIGITS else 0
        if not alignment or any(find_misplaced(self.seen, archive=self.archive, alignment=alignment)):
            return DEFAULT_ALIGNMENT
        return alignment

    def _storage(self, name: bytes) -> Walking[None]:
        storage, tape = self._storages.pop(name), self._tape
        offset, length, key = tape.offset, storage.length_bytes, name.removeprefix(b"data/").decode()
        yield from self._take_header(name, length_bytes=length)
        payload_offset = tape.offset
        lead = yield from tape.peek(min(_LEAD_BYTES, length))
        crc = yield from self._stream(key, 0, length, 0)
        if length and storage.itemsize > 1:
            after = yield from tape.peek_up_to(_MAX_DESCRIPTOR_BYTES + storage.itemsize - 1)
            slack = find_slack(after, offset=offset, length_bytes=length, itemsize=storage.itemsize)
            crc = yield from self._stream(key, length, length + slack, crc)
            length += slack
        yield from self._take_descriptor(Seen(name, offset, payload_offset, length, 0, crc, lead))

    def _stream(self, key: str, start: int, end: int, crc: int) -> Walking[int]:
        if end - start > self._tape.remaining_bytes:
            raise PastEndError
        while start < end:
            piece = self._tape.pop(end - start)
            if not piece:
                yield None
                continue
            crc = crc32(piece, crc)
            yield Payload(key, start, piece)
            start += len(piece)
        return crc

    # -- after the records

    def _end(self) -> Walking[None]:
        tape, offset = self._tape, self._tape.offset
        self.problems += [malformed(name, "the storage is missing", offset) for name in self._storages]
        records = [Record(seen.name, seen.offset, seen.length_bytes, seen.stored_crc) for seen in self.seen]
        segments = render_directory(self.archive, records, offset=offset)
        rendered = b"".join(segment.rendered for segment in segments)
        observed = yield from tape.peek_up_to(len(rendered))
        tape.skip(len(observed))
        self.directory = Directory(offset, observed, segments, observed == rendered)

    def _tail(self) -> Walking[None]:
        tape = self._tape
        while tape.remaining_bytes:
            offset, piece = tape.offset, tape.pop(tape.remaining_bytes)
            if not piece:
                yield None
            elif not self._is_zero_tail_allowed or bytes(piece).count(0) != len(piece):
                self.problems.append(malformed(None, "bytes follow the end of the zip", offset))
                return

    # -- pieces of a record

    def _peek_full_name(self) -> Walking[tuple[bytes, bytes]]:
        """Return magic and name of the header that stands here."""
        tape = self._tape
        window = yield from tape.peek_up_to(_HEADER_WINDOW_BYTES)
        if len(window) < LOCAL_FIXED_BYTES:
            raise PastEndError
        length, _ = _LENGTHS.unpack_from(window, _LENGTHS_OFFSET)
        longest = min(_MAX_NAME_BYTES, tape.remaining_bytes - LOCAL_FIXED_BYTES)
        if length > longest and not window.startswith(CENTRAL_MAGIC):
            at, message = tape.offset + _LENGTHS_OFFSET, "a record's name is too long"
            raise LostTrackError(malformed(None, message, at, f"at most {longest}", length))
        end = LOCAL_FIXED_BYTES + length
        if end > len(window):
            window = yield from tape.peek_up_to(end)
        return window[: len(CENTRAL_MAGIC)], window[LOCAL_FIXED_BYTES:end]

    def _peek_name(self) -> Walking[bytes | None]:
        """Return the name of the next record; None where the central directory begins."""
        magic, full_name = yield from self._peek_full_name()
        if magic == CENTRAL_MAGIC:
            return None
        if not full_name.startswith(self.archive):
            at = self._tape.offset + LOCAL_FIXED_BYTES
            raise LostTrackError(differ(None, "record name", at, self.archive, full_name))
        return full_name.removeprefix(self.archive)

    def _held_record(self, name: bytes, *, limit_bytes: int) -> Walking[tuple[Seen, bytes]]:
        offset = self._tape.offset
        yield from self._take_header(name, length_bytes=1)
        payload_offset = self._tape.offset
        content = yield from self._take_content(name, offset, limit_bytes=limit_bytes)
        lead, crc = content[:_LEAD_BYTES], crc32(content)
        return Seen(name, offset, payload_offset, len(content), 0, crc, lead), content

    def _take_header(self, name: bytes, *, length_bytes: int) -> Walking[None]:
        """Consume a local header; note how it differs from the rendered one."""
        tape, full_name = self._tape, self.archive + name
        aligned = align_payload(
            full_name,
            offset=tape.offset,
            length_bytes=length_bytes,
            alignment=self.alignment or DEFAULT_ALIGNMENT,
        )
        expected = _header(full_name, tape.offset, length_bytes, aligned)
        observed = yield from tape.peek_up_to(len(expected))
        if observed != expected and self.alignment is None:
            odd = yield from self._peek_odd_header(full_name, length_bytes)
            if odd is not None:
                expected = observed = odd
        if observed != expected:
            self.problems.append(differ(name, "local header", tape.offset, expected, observed))
            yield from tape.peek(len(expected))
        tape.skip(len(expected))

    def _peek_odd_header(self, full_name: bytes, length_bytes: int) -> Walking[bytes | None]:
        """Return a header that is padded for an alignment not known yet, if it renders to itself.

        `.storage_alignment` is the third record; until then any padding goes that all its
        fields agree on, and is held against the alignment in the end.
        """
        offset, fixed = self._tape.offset, (yield from self._tape.peek(LOCAL_FIXED_BYTES))
        _, extra = _LENGTHS.unpack_from(fixed, _LENGTHS_OFFSET)
        payload_offset = offset + LOCAL_FIXED_BYTES + len(full_name) + extra
        itself = render_local_header(
            full_name, offset=offset, length_bytes=length_bytes, payload_offset=payload_offset
        )
        observed = yield from self._tape.peek_up_to(payload_offset - offset)
        if itself is None or observed != itself:
            return None
        self.has_odd_padding = True
        return itself

    def _take_content(self, name: bytes, offset: int, *, limit_bytes: int) -> Walking[bytes]:
        """Consume content up to the descriptor that describes it, looking no further than needed."""
        tape = self._tape
        descriptor_length = len(render_descriptor(offset=offset, length_bytes=1, crc=0))
        longest = limit_bytes + 2 * descriptor_length
        window = min(_FIRST_WINDOW_BYTES, longest)
        while True:
            buffer = yield from tape.peek_up_to(window)
            is_last = window == longest or len(buffer) < window
            length = find_content_end(buffer, descriptor_length=descriptor_length)
            if length is None and is_last and name == _PICKLE:
                length = find_pickle_end(buffer)
            if length is not None:
                tape.skip(length)
                return buffer[:length]
            if is_last:
                raise LostTrackError(self._endless(name, is_limited=len(buffer) == longest))
            window = min(window * _WINDOW_GROWTH, longest)

    def _endless(self, name: bytes, *, is_limited: bool) -> Problem:
        problem = malformed(name, "no data descriptor ends the content", self._tape.offset)
        if not is_limited or name != _PICKLE:
            return problem
        limit = f"{self._max_pickle_bytes} bytes"
        return problem._replace(
            code=FindingCode.LIMIT_EXCEEDED,
            message=f"data.pkl has more than {limit}",
            expected=f"at most {limit}",
        )

    def _take_descriptor(self, seen: Seen) -> Walking[None]:
        """Consume the descriptor and note the record; its CRC is judged with all others in the end."""
        at = self._tape.offset
        expected = render_descriptor(offset=seen.offset, length_bytes=seen.length_bytes, crc=0)
        observed = yield from self._tape.take(len(expected))
        if observed[:4] + observed[8:] != expected[:4] + expected[8:]:
            stored = expected[:4] + observed[4:8] + expected[8:]
            self.problems.append(differ(seen.name, "data descriptor", at, stored, observed))
        self.seen.append(seen._replace(stored_crc=int.from_bytes(observed[4:8], "little")))


def _header(full_name: bytes, offset: int, length_bytes: int, payload_offset: int) -> bytes:
    rendered = render_local_header(
        full_name, offset=offset, length_bytes=length_bytes, payload_offset=payload_offset
    )
    if rendered is None:
        message = "no padding of a zip reaches this alignment"
        raise LostTrackError(malformed(full_name, message, offset, payload_offset))
    return rendered


def _unreadable_pickle(seen: Seen, error: FormatError) -> Problem:
    # With a matching CRC it is what the writer wrote: that we cannot read it is not damage.
    code = FindingCode.MALFORMED_METADATA
    if isinstance(error, LimitExceededError):
        code = FindingCode.LIMIT_EXCEEDED
    elif seen.stored_crc == seen.computed_crc:
        code = FindingCode.OBJECT_NOT_BUILT
    return Problem(
        code=code,
        message=f"data.pkl cannot be read: {error}",
        record=to_text(seen.name),
        offset=seen.payload_offset,
        length_bytes=seen.length_bytes,
    )

"""The verifier of torch.save zips: walk the bytes once, hold them against the rendering.

An item is a pure function of its payload, its pickle and a few facts (names, order,
alignment, CRCs or not). `ZipWalk` takes the facts as they pass, `torch_zip_render`
rebuilds everything else from them; whatever differs was altered.
"""

from collections.abc import Iterator
from typing import Final

from ckptguard.formats.protocol import CrcState, ItemReport, Payload, Problem, RecordExtent
from ckptguard.formats.torch_item_pickle import ItemPickle
from ckptguard.formats.torch_zip_facts import (
    Seen,
    find_content_problems,
    find_crc_state,
    find_directory_problems,
    find_misplaced,
    malformed,
    read_central_crcs,
    settle_crcs,
)
from ckptguard.formats.torch_zip_render import DEFAULT_ALIGNMENT
from ckptguard.formats.torch_zip_tape import Tape
from ckptguard.formats.torch_zip_walk import ZipWalk
from ckptguard.model.policy import MIB

DEFAULT_MAX_PICKLE_BYTES: Final = 64 * MIB


class ZipVerifier:
    """Verifies one torch.save zip, fed once, in order, in any pieces.

    Nothing that the item says about itself is trusted: the ends of `data.pkl` and of
    small records are found by descriptors that agree with the content, the lengths of
    storages come from `data.pkl`. Memory: about 500 bytes per record, a small multiple
    of `data.pkl`, and no payload.

    Args:
        length_bytes: Of the item; None where it is not known before its end (decoded streams).
        max_pickle_bytes: Largest `data.pkl` to hold.
        is_zero_tail_allowed: Zero bytes may follow the zip (torch loads such files).
    """

    def __init__(
        self,
        length_bytes: int | None,
        *,
        max_pickle_bytes: int = DEFAULT_MAX_PICKLE_BYTES,
        is_zero_tail_allowed: bool = False,
    ) -> None:
        self._tape = Tape(length_bytes)
        self._walk = ZipWalk(
            self._tape, max_pickle_bytes=max_pickle_bytes, is_zero_tail_allowed=is_zero_tail_allowed
        )
        self._walking = self._walk.run()
        self._is_done = False

    @property
    def pickle(self) -> ItemPickle | None:
        """What `data.pkl` says; None before it passed, or if it cannot be read."""
        return self._walk.pickle

    def feed(self, view: memoryview) -> Iterator[Payload]:
        """Take the next bytes; yield the storage payload among them.

        Iterate to the end before feeding again: payloads are parts of `view`.
        """
        self._tape.refill(view)
        while not self._is_done:
            try:
                payload = next(self._walking)
            except StopIteration:
                self._is_done = True
                break
            if payload is None:
                break
            yield payload
        self._tape.refill(memoryview(b""))

    def finish(self) -> ItemReport:
        """Report, after the last byte was fed."""
        if not self._tape.is_length_known:
            self._tape.end()
        for _ in self.feed(memoryview(b"")):
            pass
        walk = self._walk
        state = find_crc_state(walk.seen)
        problems = sorted(self._problems(state), key=lambda problem: problem.offset or 0)
        return ItemReport(
            problems=tuple(problems),
            crc=state,
            records=len(walk.seen),
            tensor=walk.pickle.tensor if walk.pickle else None,
            globals=walk.globals,
            extents=() if problems else tuple(map(_to_extent, walk.seen)),
        )

    def _problems(self, state: CrcState) -> Iterator[Problem]:
        walk = self._walk
        yield from walk.problems
        settled = settle_crcs(walk.seen, self._central_crcs(), state)
        yield from settled.problems
        alignment = walk.alignment or DEFAULT_ALIGNMENT
        yield from find_content_problems(walk.seen, settled.records, state=state, alignment=alignment)
        if walk.has_odd_padding:
            yield from find_misplaced(walk.seen, archive=walk.archive, alignment=alignment)
        end = walk.directory
        if end is not None and not end.is_as_rendered:
            yield from find_directory_problems(
                walk.archive, settled.records, offset=end.offset, observed=end.observed
            )
        if not self._is_done:
            yield self._ended_early()

    def _central_crcs(self) -> list[int]:
        end = self._walk.directory
        if end is None:
            return []
        if end.is_as_rendered:
            return [seen.stored_crc for seen in self._walk.seen]
        return read_central_crcs(end.segments, end.observed)

    def _ended_early(self) -> Problem:
        tape = self._tape
        arrived = tape.offset + tape.arrived_bytes
        return malformed(
            None, "the item ends early", arrived, f"{tape.length_bytes} bytes", f"{arrived} bytes"
        )


def _to_extent(seen: Seen) -> RecordExtent:
    return RecordExtent(seen.name, seen.offset, seen.payload_offset, seen.length_bytes, seen.stored_crc)

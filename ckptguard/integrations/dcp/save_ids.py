"""One save id for all parts of one checkpoint: they are saved by one call after the other."""

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from ckptguard.integrations.dcp.save_facts import Place, SaveFacts

_MAX_OPEN: Final = 64
"""Checkpoints of which some parts are not written; beyond, the oldest is forgotten."""


@dataclass(slots=True)
class _Open:
    save_id: str
    finished: set[str] = field(default_factory=set)


class SaveIds:
    """Gives save ids; one process coordinates all parts of a checkpoint. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, int | None], _Open] = OrderedDict()

    def begin(self, facts: SaveFacts, place: Place) -> tuple[str, bool]:
        """Return the id of a save that begins, and whether it is the first part of its checkpoint.

        A part that was finished under an id begins the next save of the checkpoint, with a new one.
        """
        if facts.save_id is not None or place.part is None:
            return facts.save_id or str(uuid.uuid4()), place.part is None
        key = (place.root, place.step)
        with self._lock:
            known = self._open.get(key)
            if known is not None and place.part not in known.finished:
                return known.save_id, False
            fresh = _Open(save_id=str(uuid.uuid4()))
            self._open[key] = fresh
            self._open.move_to_end(key)
            while len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
            return fresh.save_id, True

    def finish(self, place: Place, save_id: str) -> None:
        """Note that a part was written under an id."""
        with self._lock:
            known = self._open.get((place.root, place.step))
            if known is not None and known.save_id == save_id and place.part is not None:
                known.finished.add(place.part)


SAVE_IDS: Final = SaveIds()
"""Of this process."""

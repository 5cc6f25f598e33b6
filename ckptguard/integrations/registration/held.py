"""Registrations of commits to whose checkpoint the trainer still adds: they wait for its word.

A trainer that writes the state of its scheduler after the shards may die in between. Were the shards
registered before, a launcher could get a checkpoint without that state, VALID in all that was looked at.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ckptguard.integrations import incidents
from ckptguard.integrations.registration import sender
from ckptguard.integrations.registration.entry import Entry

MAX_HELD: Final = 64
"""Commits that nobody releases; beyond, the oldest is forgotten, and told of once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    entry: Entry
    is_in_place: bool


_lock = threading.Lock()
_held: OrderedDict[str, _Held] = OrderedDict()


def hold(entry: Entry, *, is_in_place: bool = True) -> None:
    """Keep an entry in memory until `release`; a later save at the same place takes its place."""
    with _lock:
        _held.pop(entry.manifest_at, None)
        _held[entry.manifest_at] = _Held(entry=entry, is_in_place=is_in_place)
        forgotten = _held.popitem(last=False)[1].entry if len(_held) > MAX_HELD else None
    if forgotten is not None:
        incidents.tell("registrations_unreleased", f"{forgotten.manifest_at} was saved, and never released")


def release() -> int:
    """Have everything that is held registered: its checkpoints are complete. Return how many parts."""
    with _lock:
        waiting = list(_held.values())
        _held.clear()
    for each in waiting:
        sender.register(each.entry, is_in_place=each.is_in_place)
    return len(waiting)


def discard() -> int:
    """Forget everything that is held: its checkpoints were not completed. Return how many parts."""
    with _lock:
        forgotten = len(_held)
        _held.clear()
    return forgotten

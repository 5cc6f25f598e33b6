"""Where a save is struck, and how far its coordinator had come."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice, product
from typing import Final

from tests.kills.guarded_ranks import WORLD, Mode
from tests.kills.guarded_saves import Who
from tests.kills.steps import BEGINS_TO_SAVE

APART_S: Final = 0.3
"""When several are killed, the others follow the first within this, or at once."""


class Place(StrEnum):
    """Where it is saved to."""

    USED = "used folder"
    NEW = "new folder"


class Phase(StrEnum):
    """How far the coordinator had come when the first process was killed."""

    BEFORE = "before anything is removed"
    REMOVAL = "removing manifest and `.metadata`"
    SHARDS = "writing shards"
    METADATA = "between `.metadata.tmp` and its rename"
    BETWEEN = "between `.metadata` and the manifest"
    MANIFEST = "done, manifest there"
    AFTER = "returned"


_PHASE_OF: Final[Sequence[tuple[str, Phase]]] = (
    ("returned", Phase.AFTER),
    ("rename to ckptguard.manifest.json", Phase.MANIFEST),
    ("create ckptguard.manifest.json", Phase.MANIFEST),  # an object is there whole, or not at all
    ("rename to .metadata", Phase.BETWEEN),
    ("create .metadata.tmp", Phase.METADATA),
    ("create __0_", Phase.SHARDS),
    ("remove ckptguard.manifest.json", Phase.REMOVAL),
    ("", Phase.BEFORE),
)
"""The first of these that begins a line of the coordinator's trace tells the phase."""


_WORDS: Final = frozenset({"ready", "returned"})
"""Lines of a trace that are no steps."""


def phase_of(trace: Sequence[str]) -> Phase:
    """Return how far a coordinator has come."""
    return next(
        phase for word, phase in _PHASE_OF if not word or any(line.startswith(word) for line in trace)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A step of a rank, before which it stops.

    Args:
        rank: Whose.
        step: As its trace names it.
        phase: Of the coordinator, then.
    """

    rank: int
    step: str
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One kill.

    Args:
        mode: How the job saves.
        place: Where to.
        victims: Ranks, and what of them is killed; the first one first.
        apart_s: Between the first and the others; what stopped goes on meanwhile.
        stop: Where it falls; None: `after_s` the save began.
        after_s: Seconds.
    """

    mode: Mode
    place: Place
    victims: tuple[tuple[int, Who], ...]
    apart_s: float = 0.0
    stop: Stop | None = None
    after_s: float = 0.0

    @property
    def is_split(self) -> bool:
        """Say whether each item gets a file of its own, so that there are steps between the items."""
        return self.stop is not None


def stops_of(traces: Mapping[int, Sequence[str]]) -> Iterator[Stop]:
    """Yield the stops of a save, by what its ranks told of an undisturbed one.

    The coordinator's own steps tell the phase. Of the other ranks only the shards are theirs, and what they
    do before the coordinator has heard of them.
    """
    told: list[str] = []
    for line in traces[0]:
        if line not in _WORDS:
            yield Stop(rank=0, step=line, phase=phase_of(told))
        told.append(line)
    for rank in range(1, WORLD):
        yield Stop(rank=rank, step=BEGINS_TO_SAVE, phase=Phase.BEFORE)
        for line in traces[rank]:
            if line.startswith("create __"):
                yield Stop(rank=rank, step=line, phase=Phase.SHARDS)


def stepped_blows(
    mode: Mode, stops: Mapping[Place, Sequence[Stop]], *, each: int, chance: random.Random
) -> Iterator[Blow]:
    """Yield as many blows for each phase that the saves have, at steps, places and victims by chance."""
    for phase in Phase:
        places = [(place, stop) for place, found in stops.items() for stop in found if stop.phase is phase]
        choices = list(product(places, _victims(mode)))
        chance.shuffle(choices)
        for (place, stop), victims in islice(cycle(choices), each if choices else 0):
            apart_s = chance.choice([0.0, chance.uniform(0, APART_S)])
            yield Blow(mode=mode, place=place, victims=victims, apart_s=apart_s, stop=stop)


def random_blows(
    mode: Mode, seconds: Mapping[Place, float], *, count: int, chance: random.Random
) -> Iterator[Blow]:
    """Yield blows over 0 to 120 % of the time that one save takes, in both places in turn."""
    for place in islice(cycle(seconds), count):
        yield Blow(
            mode=mode,
            place=place,
            victims=chance.choice(_victims(mode)),
            apart_s=chance.uniform(0, APART_S),
            after_s=chance.uniform(0, 1.2) * seconds[place],
        )


def _victims(mode: Mode) -> list[tuple[tuple[int, Who], ...]]:
    ranks: list[tuple[int, ...]] = [(0,), (1,), (0, 1), (1, 0)]
    kinds = list(Who) if mode is Mode.PROCESS else [Who.ALL]
    return [tuple((rank, who) for rank in chosen) for chosen in ranks for who in kinds]

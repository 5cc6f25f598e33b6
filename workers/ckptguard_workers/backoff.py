"""How long to wait before the same is tried again."""

import random
from typing import Final

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0


class Backoff:
    """Twice as long each time, up to a bound, each with jitter: a fleet does not come back as one.

    Args:
        chance: Draws the jitter.
        first_s: Bound of the first wait.
        longest_s: Bound of every wait.
    """

    def __init__(
        self, chance: random.Random, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S
    ) -> None:
        self._chance = chance
        self._first_s = first_s
        self._longest_s = longest_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """Return the next wait: between half its bound and all of it."""
        bound_s, self._bound_s = self._bound_s, min(2 * self._bound_s, self._longest_s)
        return bound_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin anew: it worked."""
        self._bound_s = self._first_s

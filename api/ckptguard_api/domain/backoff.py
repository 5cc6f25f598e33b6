"""How long to wait before a delivery is tried again."""

import random
from typing import Final

DELAYS_S: Final = (5.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0, 36000.0)
"""After the first failure, the second, and so on: 5 s to 10 h, 1.5 days in all; then it is given up."""

JITTER: Final = 0.2
"""Each delay is up to this part longer or shorter: what failed together is not sent again together."""


def delay_s_after(failures: int, *, chance: random.Random) -> float | None:
    """Return seconds until the next try, or None where there is none.

    Args:
        failures: Tries that failed so far, at least 1.
        chance: Source of the jitter.
    """
    if failures > len(DELAYS_S):
        return None
    return DELAYS_S[failures - 1] * chance.uniform(1 - JITTER, 1 + JITTER)

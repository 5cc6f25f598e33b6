"""Whether anybody still writes: a checkpoint is registered once it stayed the same for the settle time."""

from collections.abc import Iterable

from ckptguard.clock import Clock
from ckptguard.operations.adopt.found import Found


class Settling:
    """Remembers since when each folder looks as it does.

    Grows with the folders that are there, and forgets those that are gone.

    Args:
        settle_s: How long nothing may change.
        clock: Wall clock for the times of files, monotonic for what was seen here.
    """

    def __init__(self, settle_s: float, clock: Clock) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._since: dict[str, tuple[str, float]] = {}

    def look(self, found: Iterable[Found]) -> None:
        """Take note of what a listing shows now."""
        now_s = self._clock.monotonic_s()
        before, self._since = self._since, {}
        for each in found:
            version, since_s = before.get(each.folder, (each.version, now_s))
            self._since[each.folder] = (each.version, since_s if version == each.version else now_s)

    def is_settled(self, found: Found) -> bool:
        """Say whether it is at rest: seen so for the settle time, or its newest file is as old as that."""
        return self.left_s(found) <= 0

    def is_watched(self, found: Found) -> bool:
        """Say whether it was seen unchanged for the settle time, whatever the times of its files say."""
        return self.watched_left_s(found) <= 0

    def left_s(self, found: Found) -> float:
        """Return the seconds until it is settled, if nothing changes."""
        left_s = self.watched_left_s(found)
        if found.newest_at is not None:
            age_s = (self._clock.now() - found.newest_at).total_seconds()
            left_s = min(left_s, self._settle_s - age_s)
        return max(0.0, left_s)

    def watched_left_s(self, found: Found) -> float:
        """Return the seconds until it was seen unchanged for the settle time."""
        version, since_s = self._since.get(found.folder, (found.version, self._clock.monotonic_s()))
        if version != found.version:
            return self._settle_s
        return max(0.0, self._settle_s - (self._clock.monotonic_s() - since_s))

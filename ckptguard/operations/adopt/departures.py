"""Checkpoints that were there and are not any more: retention took them, or a mount went away."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ckptguard.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A checkpoint that the service knows.

    Args:
        run: Its run.
        step: Its number.
        checkpoint_id: The service's.
        save_version: Under which it was told.
    """

    run: str
    step: int
    checkpoint_id: int
    save_version: str


class Departures:
    """Waits before it believes that a checkpoint is gone, and never believes it of a whole run.

    Retention leaves at least one checkpoint; where nothing of a run is left, a mount is missing, or
    somebody works on the folder, and that is no reason to call the run's checkpoints deleted.

    Args:
        settle_s: How long it must have been away.
        clock: Tells time.
    """

    def __init__(self, settle_s: float, clock: Clock) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._away_since: dict[str, float] = {}

    def look(self, told: Mapping[str, Told], *, present: Collection[str], runs: Collection[str]) -> list[str]:
        """Return the folders of checkpoints that are gone.

        Args:
            told: Folder to checkpoint.
            present: Folders that hold anything at all.
            runs: Runs of which any step is there.
        """
        now_s = self._clock.monotonic_s()
        away = [folder for folder, each in told.items() if folder not in present and each.run in runs]
        self._away_since = {folder: self._away_since.get(folder, now_s) for folder in away}
        return [
            folder
            for folder, since_s in self._away_since.items()
            if since_s < now_s and now_s - since_s >= self._settle_s
        ]

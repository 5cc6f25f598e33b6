"""What a failure right now would cost a run (design §7)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePoint:
    """Where and when a checkpoint was saved.

    Args:
        step: Optimizer steps done.
        created_at: Of the save, as its writer says.
    """

    step: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Work that is lost if the run dies now; None where it is not known, never zero.

    Args:
        seconds: Since the newest VALID save.
        steps: Known to be saved after it, and not proven.
        gpu_hours: Those seconds on all GPUs of the run.
        usd: Their price, to the cent.
    """

    seconds: float | None = None
    steps: int | None = None
    gpu_hours: float | None = None
    usd: float | None = None


def exposure_of(
    *,
    now: datetime,
    newest_valid: SavePoint | None,
    newest_step: int | None,
    gpus: int | None,
    usd_per_gpu_hour: float | None,
) -> Exposure:
    """Return (now - `created_at` of the newest VALID checkpoint) x GPUs x price.

    Args:
        now: Time to count to.
        newest_valid: Newest checkpoint that a resume may use; None: there is none, and nobody knows
            since when the run trains, so nothing can be said.
        newest_step: Highest step known of the run, proven or not.
        gpus: Of the run; None: not told.
        usd_per_gpu_hour: Price; None: not told.

    Guarantees: nothing is negative, although a writer's clock may run ahead.
    """
    if newest_valid is None:
        return Exposure()
    seconds = max(0.0, (now - newest_valid.created_at).total_seconds())
    gpu_hours = None if gpus is None else seconds / _HOUR_S * gpus
    usd = None if gpu_hours is None or usd_per_gpu_hour is None else round(gpu_hours * usd_per_gpu_hour, 2)
    return Exposure(
        seconds=seconds,
        steps=None if newest_step is None else max(0, newest_step - newest_valid.step),
        gpu_hours=gpu_hours,
        usd=usd,
    )

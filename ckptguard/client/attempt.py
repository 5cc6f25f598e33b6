"""The launcher's name of one start, which `resume` and the trainer find alike."""

import uuid
from collections.abc import Mapping
from typing import Final

ATTEMPT_VARIABLE: Final = "CKPTGUARD_ATTEMPT"
"""Overrides what is found; printed by `resume --format env`."""
_MAX_CHARS: Final = 200
_SOURCES: Final = (
    ("torchelastic", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ("slurm", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"),
)


def attempt_key(environment: Mapping[str, str]) -> str:
    """Return the name of this start: the same in all its processes, another one after a restart.

    From torchrun's or Slurm's variables; where there are none, by chance.
    """
    if given := environment.get(ATTEMPT_VARIABLE):
        return given[:_MAX_CHARS]
    for source, name, count in _SOURCES:
        # torchrun calls a run without a name "none".
        if (value := environment.get(name, "none")) not in {"", "none"}:
            return f"{source}-{value[: _MAX_CHARS - 40]}-{environment.get(count, '0')[:20]}"
    return f"start-{uuid.uuid4()}"

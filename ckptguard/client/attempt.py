"""The launcher's name of one start, which `resume` and the trainer find alike."""

import uuid
from collections.abc import Mapping
from typing import Final

ATTEMPT_VARIABLE: Final = "CKPTGUARD_ATTEMPT"
"""Overrides what is found; printed by `resume --format env`."""
ELASTIC_COUNT_VARIABLE: Final = "TORCHELASTIC_RESTART_COUNT"
_MAX_CHARS: Final = 200
_MAX_NAME_CHARS: Final = _MAX_CHARS - 60
_MAX_COUNT_CHARS: Final = 20


def attempt_key(environment: Mapping[str, str]) -> str:
    """Return the name of this start: the same in all its processes, another one after a restart.

    From the launcher's variables; where there are none, by chance. Slurm restarts a job, and
    torchrun restarts its ranks within one: the name counts both, and a first start has the same
    name in the batch script and in the ranks.
    """
    within = _count(environment, ELASTIC_COUNT_VARIABLE)
    suffix = f".{within}" if within != "0" else ""
    if given := environment.get(ATTEMPT_VARIABLE):
        return f"{given[: _MAX_CHARS - len(suffix)]}{suffix}"
    if job := _name(environment, "SLURM_JOB_ID"):
        return f"slurm-{job}-{_count(environment, 'SLURM_RESTART_COUNT')}{suffix}"
    if run := _name(environment, "TORCHELASTIC_RUN_ID"):
        return f"torchelastic-{run}-{within}"
    return f"start-{uuid.uuid4()}"


def is_attempt_known(environment: Mapping[str, str]) -> bool:
    """Say whether the name comes from the environment, and is not one by chance."""
    return bool(
        environment.get(ATTEMPT_VARIABLE)
        or _name(environment, "SLURM_JOB_ID")
        or _name(environment, "TORCHELASTIC_RUN_ID")
    )


def _name(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable, "")
    # torchrun calls a run without a name "none".
    return "" if value == "none" else value[:_MAX_NAME_CHARS]


def _count(environment: Mapping[str, str], variable: str) -> str:
    return environment.get(variable, "")[:_MAX_COUNT_CHARS] or "0"

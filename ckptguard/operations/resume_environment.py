"""What `resume --format env` hands from a launcher to its job, written and read in one place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptguard.client.attempt import ATTEMPT_VARIABLE
from ckptguard.errors import ConfigError
from ckptguard.model.resume import Ending
from ckptguard.operations.resume_start import Started

RUN_VARIABLE: Final = "CKPTGUARD_RUN"
PATH_VARIABLE: Final = "CKPTGUARD_RESUME_PATH"
ROOT_VARIABLE: Final = "CKPTGUARD_RESUME_ROOT"
"""The folder that holds the checkpoint: Megatron's `--load`, DeepSpeed's `load_dir`."""
TAG_VARIABLE: Final = "CKPTGUARD_RESUME_TAG"
"""The name of the checkpoint's folder: DeepSpeed's `tag`."""
STEP_VARIABLE: Final = "CKPTGUARD_RESUME_STEP"
CHECKPOINT_VARIABLE: Final = "CKPTGUARD_RESUME_CHECKPOINT"
BRANCH_VARIABLE: Final = "CKPTGUARD_RESUME_BRANCH"
ENDING_VARIABLE: Final = "CKPTGUARD_RESUME_ENDING"
"""`proven`, or what the caller accepted instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """What a launcher handed down.

    Args:
        run: Its name; None: not told.
        path: To resume from; None: the start is one from nothing.
        step: Of that checkpoint.
        checkpoint_id: The service's; None: not from the service.
        branch: That this start opened; None: it was not reported.
        ending: How `resume` ended.
    """

    run: str | None = None
    path: str | None = None
    step: int | None = None
    checkpoint_id: int | None = None
    branch: int | None = None
    ending: Ending | None = None


def root_and_tag(path: str) -> tuple[str, str]:
    """Split the path of a checkpoint into the folder that holds it and its own name."""
    root, _, tag = path.rstrip("/").rpartition("/")
    return root or "/", tag


def assignments(run: str, started: Started) -> dict[str, str]:
    """Return the variables of one start from a checkpoint; what is not known has no variable."""
    found = started.found
    assert found.path is not None  # noqa: S101 - only a start from a checkpoint is handed down
    root, tag = root_and_tag(found.path)
    values: dict[str, str | int | None] = {
        RUN_VARIABLE: run,
        PATH_VARIABLE: found.path,
        ROOT_VARIABLE: root,
        TAG_VARIABLE: tag,
        STEP_VARIABLE: found.step,
        CHECKPOINT_VARIABLE: None if found.target is None else found.target.id,
        BRANCH_VARIABLE: started.branch,
        ENDING_VARIABLE: found.ending.value,
        ATTEMPT_VARIABLE: started.attempt,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def handed_down(environment: Mapping[str, str]) -> Handed:
    """Read what a launcher handed down.

    Raises:
        ConfigError: A variable does not hold what it should.
    """
    return Handed(
        run=environment.get(RUN_VARIABLE) or None,
        path=environment.get(PATH_VARIABLE) or None,
        step=_number(environment, STEP_VARIABLE),
        checkpoint_id=_number(environment, CHECKPOINT_VARIABLE),
        branch=_number(environment, BRANCH_VARIABLE),
        ending=_ending(environment.get(ENDING_VARIABLE, "")),
    )


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        msg = f"{name} is {text[:40]!r}, not a number"
        raise ConfigError(msg)
    return int(text)


def _ending(text: str) -> Ending | None:
    if not text:
        return None
    try:
        return Ending(text)
    except ValueError as error:
        msg = f"{ENDING_VARIABLE} is {text[:40]!r}, not an ending of `resume`"
        raise ConfigError(msg) from error

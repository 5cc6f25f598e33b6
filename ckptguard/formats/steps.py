"""What names tell about steps: which one, whether finished, whether a save in progress."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptguard.formats.safetensors_sets import is_shard_name
from ckptguard.model.report import StepSummary

_NUMBER: Final = r"[-_=]?(\d{1,18})"
_STEP_NAMES: Final = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        # torchtitan step-4, verl global_step_1, DeepSpeed global_step1, OLMo step1000-unsharded,
        # Lightning epoch=1-step=200-v1.ckpt, NeMo model--val_loss=1.2-step=200-last
        rf"(?:[^=]*=.*-)?(?:global[-_]?)?step{_NUMBER}(?:-last|-v\d+|-(?:un)?sharded|-consumed_samples=[\d.]+|\.ckpt)*",
        # Megatron iter_0000007, Hugging Face checkpoint-800, Accelerate checkpoint_0
        rf"(?:iter|iteration|checkpoint|ckpt){_NUMBER}",
        r"(?:ep\d+-)?ba(\d{1,18})",  # Composer ep1-ba200
        rf"epoch{_NUMBER}(?:\.ckpt)?",
        r"(\d{1,18})",
    )
)
_IN_PROGRESS: Final = re.compile(
    r"(?:tmp[-_](?P<after>.+)|(?P<before>.+?)(?:[._-]tmp(?:[-.].*)?|\.partial|\.incomplete|-unfinished))"
)
UNFINISHED_SUFFIX: Final = "-unfinished"
"""NeMo puts an empty file `NAME-unfinished` beside a checkpoint until it is complete."""
_RANK_FILE: Final = re.compile(r"__(\d+)_\d+\.distcp")
_RANK_METADATA: Final = re.compile(r"__(\d+)\.metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFolder:
    """One step of a folder of steps.

    Args:
        step: Its number.
        folder: Relative to the listing.
        formats: Adapter names of its parts; empty where nothing was recognised.
        doubt: Why names alone say that it is not committed; None where they say it is.
    """

    step: int
    folder: str
    formats: tuple[str, ...]
    doubt: str | None

    def to_summary(self) -> StepSummary:
        """Return the form that reports carry."""
        return StepSummary(
            step=self.step,
            path=self.folder,
            format="+".join(self.formats),
            is_committed=self.doubt is None,
        )


def parse_step(name: str) -> int | None:
    """Return the step that a folder's name tells; None for every other name.

    Numbers are compared as numbers: `checkpoint-1000` is newer than `checkpoint-200`.
    """
    if is_unfinished_name(name):
        return None
    matches = (pattern.fullmatch(name) for pattern in _STEP_NAMES)
    return next((int(match[1]) for match in matches if match), None)


def is_unfinished_name(name: str) -> bool:
    """Say whether a name is one that writers give to a save in progress (`step-5.tmp`)."""
    return _IN_PROGRESS.fullmatch(name) is not None


def is_unfinished_step(name: str) -> bool:
    """Say whether a name is that of one step's save in progress; `backup-tmp` is none."""
    match = _IN_PROGRESS.fullmatch(name)
    return match is not None and parse_step(match["after"] or match["before"]) is not None


def commit_doubt(format_name: str, names: Sequence[str]) -> str | None:
    """Say why a part is not committed, from the names in its folder; None if it is.

    Args:
        format_name: The adapter's name; formats without a rule here are taken as committed.
        names: Files directly in the folder.
    """
    rule = _RULES.get(format_name)
    return rule(names) if rule else None


def newest(steps: Sequence[StepFolder]) -> StepFolder | None:
    """Return the newest committed step, else the newest of all; None if there is none."""
    committed = [step for step in steps if step.doubt is None]
    return max(committed or steps, key=lambda step: (step.step, step.folder), default=None)


def _dcp_doubt(names: Sequence[str]) -> str | None:
    if ".metadata" in names:
        return None
    ranks = {match[1] for name in names if (match := _RANK_FILE.fullmatch(name))}
    described = {match[1] for name in names if (match := _RANK_METADATA.fullmatch(name))}
    if described and ranks <= described:
        return None
    return "no .metadata" if not described else "ranks without their own .metadata"


def _safetensors_doubt(names: Sequence[str]) -> str | None:
    """An index without any shard is a save that never got to its data; more, only headers can tell."""
    return None if any(map(is_shard_name, names)) else "no shard"


_RULES: Final[Mapping[str, Callable[[Sequence[str]], str | None]]] = {
    "dcp": _dcp_doubt,
    "safetensors": _safetensors_doubt,
}

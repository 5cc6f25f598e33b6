"""A whole checkpoint: its parts, found below one folder."""

from dataclasses import dataclass

from ckptguard.model.finding import Finding
from ckptguard.model.layout import Layout
from ckptguard.model.report import StepSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint below one folder.

    Args:
        root: Folder in the store; all paths of the layouts are relative to it.
        layouts: The parts; at least one, except where nothing was recognised.
        step: The step, where the folder's name or a tracker tells it.
        steps: All steps that stand beside it, where a folder of steps was asked for.
        surroundings: Findings about pointers and other steps.
        sightings: What was seen where no format was recognised, for a person.
    """

    root: str
    layouts: tuple[Layout, ...]
    step: int | None = None
    steps: tuple[StepSummary, ...] = ()
    surroundings: tuple[Finding, ...] = ()
    sightings: tuple[str, ...] = ()

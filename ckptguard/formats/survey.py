"""What a folder is, from names alone: one checkpoint, a folder of steps, or neither."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ckptguard.formats.folder_tree import FolderTree, join
from ckptguard.formats.parts import find_parts, linked_sibling, parts_in
from ckptguard.formats.protocol import FormatAdapter
from ckptguard.formats.steps import UNFINISHED_SUFFIX, StepFolder, is_unfinished_name, parse_step

_MAX_LEVELS: Final = 2
"""Folders between what was asked for and its steps (torchtitan: `outputs/checkpoint/step-4`)."""
_TRAINER_STATE: Final = "trainer_state.json"


class FolderKind(StrEnum):
    """What was found."""

    CHECKPOINT = "checkpoint"
    STEPS = "steps"
    AMBIGUOUS = "ambiguous"  # several folders of steps: several runs
    UNKNOWN = "unknown"  # files, and none of a format that we know
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What names tell.

    Args:
        kind: What the folder is.
        steps: By step; of a folder of steps only.
        base: The folder that holds the steps, relative to the listing.
        unfinished: Folders beside the steps whose names say that a save was not finished.
        rivals: Folders that each hold steps, where there are several.
        own_formats: Of a folder of steps: adapters that recognise files beside the steps.
    """

    kind: FolderKind
    steps: tuple[StepFolder, ...] = ()
    base: str = ""
    unfinished: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    own_formats: tuple[str, ...] = ()


def survey(tree: FolderTree, adapters: Sequence[FormatAdapter], *, root_name: str) -> Survey:
    """Say what a folder is.

    Args:
        tree: Its names.
        adapters: In the order in which they are asked.
        root_name: What the folder itself is called; `checkpoint-800` is a step, whatever
            numbers stand in it (DeepSpeed: `checkpoint-800/global_step799`).
    """
    is_step = parse_step(root_name) is not None and not root_name.isdecimal()
    at_root = {part.adapter.name for part in parts_in(tree, "", adapters)}
    # Hugging Face saves the final model, and DeepSpeed its scripts, beside the steps; nobody puts steps
    # into a DCP folder.
    if not is_step and at_root <= {"safetensors", "torch_save"}:
        bases = _bases(tree, adapters, has_own=bool(at_root))
        if len(bases) > 1:
            return Survey(kind=FolderKind.AMBIGUOUS, rivals=tuple(bases))
        for base, steps in bases.items():
            return Survey(
                kind=FolderKind.STEPS,
                steps=steps,
                base=base,
                unfinished=unfinished_in(tree, base),
                own_formats=tuple(sorted(at_root)),
            )
    if find_parts(tree, "", adapters):
        return Survey(kind=FolderKind.CHECKPOINT)
    return Survey(kind=FolderKind.UNKNOWN if tree.files else FolderKind.EMPTY)


def _bases(
    tree: FolderTree, adapters: Sequence[FormatAdapter], *, has_own: bool
) -> dict[str, tuple[StepFolder, ...]]:
    """Return the folders that hold steps, on the first level that has any."""
    for level in range(1 if has_own else _MAX_LEVELS + 1):
        found = {folder: _steps(tree, folder, adapters) for folder in _at_level(tree, level)}
        holding = {folder: steps for folder, steps in found.items() if any(step.formats for step in steps)}
        if holding:
            return holding
    return {}


def _at_level(tree: FolderTree, level: int) -> Iterator[str]:
    for folder in tree.folders_below("", max_depth=level):
        depth = folder.count("/") + 1 if folder else 0
        if depth == level and linked_sibling(tree, folder) is None:
            yield folder


def _steps(tree: FolderTree, base: str, adapters: Sequence[FormatAdapter]) -> tuple[StepFolder, ...]:
    numbers = {child: parse_step(child) for child in tree.children.get(base, ())}
    named = {join(base, child): step for child, step in numbers.items() if step is not None}
    return steps_among(tree, named, adapters)


def steps_among(
    tree: FolderTree, named: Mapping[str, int], adapters: Sequence[FormatAdapter]
) -> tuple[StepFolder, ...]:
    """Say what stands in folders that are steps of one run, and whether names call it committed.

    Args:
        tree: Names.
        named: Folders of one run, and the step that each is.
        adapters: In the order in which they are asked.

    Returns:
        By step.
    """
    steps = [_step(tree, folder, step, adapters) for folder, step in named.items()]
    return tuple(sorted(_hold_together(tree, steps), key=lambda step: (step.step, step.folder)))


def _step(tree: FolderTree, folder: str, step: int, adapters: Sequence[FormatAdapter]) -> StepFolder:
    parts = find_parts(tree, folder, adapters)
    doubt = next((part.doubt for part in parts if part.doubt), None)
    if not parts:
        doubt = "nothing of a known format in it"
    base, _, name = folder.rpartition("/")
    if name and name + UNFINISHED_SUFFIX in tree.files.get(base, ()):
        doubt = f"marked by {name}{UNFINISHED_SUFFIX}"
    return StepFolder(
        step=step,
        folder=folder,
        formats=tuple(dict.fromkeys(part.adapter.name for part in parts)),
        doubt=doubt,
    )


def _hold_together(tree: FolderTree, steps: Sequence[StepFolder]) -> Iterator[StepFolder]:
    """Doubt a step without the file that Hugging Face's Trainer writes last, where others have it.

    A resume from it fails (huggingface/transformers#35782).
    """
    having = {step.folder for step in steps if _TRAINER_STATE in tree.files.get(step.folder, ())}
    for step in steps:
        if having and step.folder not in having and step.doubt is None:
            yield StepFolder(
                step=step.step,
                folder=step.folder,
                formats=step.formats,
                doubt=f"no {_TRAINER_STATE}, which other steps have",
            )
        else:
            yield step


def unfinished_in(tree: FolderTree, base: str) -> tuple[str, ...]:
    """Return what stands directly in a folder under the name of a save in progress."""
    names = (*tree.children.get(base, ()), *tree.files.get(base, ()))
    return tuple(join(base, name) for name in names if is_unfinished_name(name))

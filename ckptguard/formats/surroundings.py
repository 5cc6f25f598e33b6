"""What stands around a checkpoint and says nothing about its own bytes: other steps, leftovers."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from ckptguard.formats.folder_tree import FolderTree, join
from ckptguard.formats.steps import UNFINISHED_SUFFIX, StepFolder, parse_step
from ckptguard.formats.survey import Survey
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity

_MAX_TOLD: Final = 20

_warning = partial(Finding, check=CheckName.EXISTENCE, severity=Severity.WARNING)
_info = partial(Finding, check=CheckName.EXISTENCE, severity=Severity.INFO)


def describe_surroundings(tree: FolderTree, survey: Survey, chosen: StepFolder) -> tuple[Finding, ...]:
    """Tell what a user of a folder of steps should know besides the verdict on one of them.

    Args:
        tree: Names.
        survey: Of a folder of steps.
        chosen: The step that is checked.

    Returns:
        `not_committed` (warning) for newer steps that were passed over, `unfinished_marker`
        (info) for saves in progress, `path_escape` (warning) for steps that are links out
        of the root, `unreferenced_file` (info) for a checkpoint beside the steps.
    """
    passed_over = [step for step in survey.steps if step.doubt and step.step > chosen.step]
    return (
        *(_passed_over(step) for step in passed_over[-_MAX_TOLD:]),
        *_unfinished(survey),
        *_escaping(tree, survey),
        *_beside(survey),
    )


def inner_step(tree: FolderTree, folder: str, step: int | None) -> Iterator[Finding]:
    """Warn where a folder inside a checkpoint names another step than the checkpoint itself.

    Skipped steps are one legal way to it (deepspeedai/DeepSpeed#7405).
    """
    for child in tree.children.get(folder, ()):
        inner = parse_step(child)
        if step is not None and inner is not None and inner != step and not child.isdecimal():
            yield _warning(
                code=FindingCode.MIXED_SAVES,
                message=f"{child} stands in the checkpoint of step {step}",
                file=child,
                expected=f"step {step}",
                observed=f"step {inner}",
            )


def _passed_over(step: StepFolder) -> Finding:
    return _warning(
        code=FindingCode.NOT_COMMITTED,
        message=f"step {step.step} in {step.folder} was passed over: {step.doubt}",
        file=step.folder,
        observed=step.doubt,
    )


def _unfinished(survey: Survey) -> Iterator[Finding]:
    marked = {step.folder + UNFINISHED_SUFFIX for step in survey.steps}
    for path in [path for path in survey.unfinished if path not in marked][:_MAX_TOLD]:
        yield _info(
            code=FindingCode.UNFINISHED_MARKER,
            message=f"{path} is a save in progress, or one that was never finished",
            file=path,
        )


def _escaping(tree: FolderTree, survey: Survey) -> Iterator[Finding]:
    names = [name for name in tree.files.get(survey.base, ()) if parse_step(name) is not None]
    for path in [join(survey.base, name) for name in names][:_MAX_TOLD]:
        if path in tree.listing.escapes:
            yield _warning(
                code=FindingCode.PATH_ESCAPE,
                message=f"{path} is a link out of the allowed root; this step was not looked at",
                file=path,
            )


def _beside(survey: Survey) -> Iterator[Finding]:
    if survey.own_formats:
        yield _info(
            code=FindingCode.UNREFERENCED_FILE,
            message=f"files of format {'+'.join(survey.own_formats)} stand beside the steps;"
            " they are not part of this verdict",
        )

"""Pointer files: what trainers write to name the newest step, held against the steps that are there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ckptguard.formats.steps import parse_step
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.report import StepSummary

POINTER_NAMES: Final = ("latest_checkpointed_iteration.txt", "latest", "LATEST", "last")
"""Megatron and verl, DeepSpeed, NeMo (a file or a link), Lightning (a link)."""
RELEASE: Final = "release"
"""Megatron's word for a checkpoint without a step; its folder has the same name."""
_LONGEST_SHOWN: Final = 80

_warning = partial(
    Finding, code=FindingCode.POINTER_STALE, check=CheckName.EXISTENCE, severity=Severity.WARNING
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """One pointer as it was found.

    Args:
        path: The file, or the link to a folder.
        text: What it says: a step's number, or a folder's name; None where it could
            not be a pointer's text (too long, not UTF-8).
    """

    path: str
    text: str | None


def parse_pointer(raw: bytes) -> str | None:
    """Return the text of a pointer file, without space around it; None if it is none."""
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def check_pointers(
    steps: Sequence[StepSummary], pointers: Sequence[Pointer], *, folders: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Report every pointer that would lead a trainer to no step, or to another than the newest.

    Says nothing about the steps themselves: a pointer can be wrong beside good checkpoints.

    Args:
        steps: All steps beside the pointers, in any order.
        pointers: What was found.
        folders: Names of all folders beside the pointers.

    Returns:
        `pointer_stale`: a warning where it names nothing, something uncommitted, or cannot
        be read; an info where a newer committed step exists.
    """
    return tuple(finding for pointer in pointers for finding in _check(steps, pointer, folders))


def _check(steps: Sequence[StepSummary], pointer: Pointer, folders: Sequence[str]) -> Iterator[Finding]:
    if not pointer.text:
        what = "is empty" if pointer.text == "" else "does not hold a step or a folder's name"
        yield _warning(message=f"{pointer.path} {what}", file=pointer.path, observed=pointer.text)
        return
    target = pointer.text.rstrip("/").rpartition("/")[2]
    shown = target[:_LONGEST_SHOWN]
    if target == RELEASE and RELEASE in folders:
        return
    named = _named(steps, target)
    newest = max((step.step for step in steps if step.is_committed), default=None)
    committed = None if newest is None else f"step {newest}, the newest committed"
    if not named:
        yield _warning(
            message=f"{pointer.path} names {shown}, which is not there",
            file=pointer.path,
            expected=committed,
            observed=shown,
        )
    elif not any(step.is_committed for step in named):
        yield _warning(
            message=f"{pointer.path} names {shown}, which is not committed",
            file=pointer.path,
            expected=committed,
            observed=shown,
        )
    elif newest is not None and newest > named[0].step:
        yield Finding(
            code=FindingCode.POINTER_STALE,
            check=CheckName.EXISTENCE,
            severity=Severity.INFO,
            message=f"{pointer.path} names step {named[0].step}; step {newest} is newer and committed",
            file=pointer.path,
            expected=committed,
            observed=shown,
        )


def _named(steps: Sequence[StepSummary], target: str) -> list[StepSummary]:
    """Return the steps that a pointer means: by folder name, else by number."""
    by_name = [step for step in steps if step.path.rpartition("/")[2] == target]
    number = parse_step(target)
    return by_name or [step for step in steps if step.step == number]

"""Trackers and `latest` pointers that would lead a trainer to no step, or to another than the newest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from ckptguard.formats.folder_tree import FolderTree, join
from ckptguard.formats.pointer_files import read_pointers
from ckptguard.formats.pointers import POINTER_NAMES, Pointer, check_pointers
from ckptguard.formats.steps import StepFolder, parse_step
from ckptguard.model.finding import Finding, Severity
from ckptguard.model.report import StepSummary
from ckptguard.storage.local import LocalStore
from ckptguard.storage.protocol import Store


class Fault(StrEnum):
    """What is wrong with a pointer."""

    STALE = "stale"  # a newer committed step exists
    DANGLING = "dangling"  # names a step that is not there
    UNCOMMITTED = "uncommitted"  # names a step that is not committed
    UNPARSABLE = "unparsable"  # empty, or names no step at all


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerFault:
    """One pointer that is wrong; the checkpoints beside it may all be good.

    Args:
        run: Whose steps it stands beside.
        path: Of the pointer, relative to the listing.
        fault: What kind.
        message: For a person; names what it says, and the newest committed step.
    """

    run: str
    path: str
    fault: Fault
    message: str


def find_pointer_faults(
    store: Store, tree: FolderTree, base: str, *, run: str, steps: Sequence[StepFolder]
) -> Iterator[PointerFault]:
    """Read the pointers in a folder of steps and hold them against the steps.

    Args:
        store: Where they are.
        tree: Names.
        base: The folder.
        run: Of the steps.
        steps: Of this folder, with what names say of them; compared as numbers, never as text.

    Raises:
        StoreError: A pointer could not be read.
    """
    summaries = [step.to_summary() for step in steps]
    pointers = (*read_pointers(store, tree, base), *_broken_links(store, tree, base))
    for pointer in pointers:
        for finding in check_pointers(summaries, [pointer], folders=tree.children.get(base, ())):
            kind = _kind(finding, pointer, summaries)
            yield PointerFault(run=run, path=pointer.path, fault=kind, message=finding.message)


def _kind(finding: Finding, pointer: Pointer, steps: Sequence[StepSummary]) -> Fault:
    if finding.severity is Severity.INFO:
        return Fault.STALE
    target = (pointer.text or "").rstrip("/").rpartition("/")[2]
    if_committed = check_pointers([replace(step, is_committed=True) for step in steps], [pointer])
    if all(other.severity is Severity.INFO for other in if_committed):
        return Fault.UNCOMMITTED
    return Fault.UNPARSABLE if parse_step(target) is None else Fault.DANGLING


def _broken_links(store: Store, tree: FolderTree, base: str) -> Iterator[Pointer]:
    """Yield links of this machine that lead nowhere: no listing shows them."""
    inner: object = store
    while inner is not None and not isinstance(inner, LocalStore):
        inner = getattr(inner, "inner", None)  # of wrappers
    if inner is None:
        return
    for name in POINTER_NAMES:
        path = join(base, name)
        place = inner.root / tree.listing.in_store(path)
        if place.is_symlink() and not place.exists():
            yield Pointer(path=path, text=_link_text(place))


def _link_text(place: Path) -> str | None:
    try:
        text = str(place.readlink())
    except OSError:  # replaced at this moment
        return None
    return text if text.isprintable() else None

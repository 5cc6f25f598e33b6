"""From a folder that a user names to the checkpoint, or the checkpoints, in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ckptguard.errors import AccessDeniedError, ObjectNotFoundError, PathEscapeError
from ckptguard.formats import sightings
from ckptguard.formats.checkpoint import Checkpoint
from ckptguard.formats.folder_tree import FolderTree, index_folders
from ckptguard.formats.parts import (
    SHARING_FORMATS,
    PartFolder,
    escaping_folders,
    find_parts,
    not_opened,
    open_parts,
)
from ckptguard.formats.pointer_files import read_pointers
from ckptguard.formats.pointers import check_pointers
from ckptguard.formats.protocol import FormatAdapter
from ckptguard.formats.registry import adapters as installed_adapters
from ckptguard.formats.steps import UNFINISHED_SUFFIX, StepFolder, is_unfinished_step, newest, parse_step
from ckptguard.formats.surroundings import describe_surroundings, inner_step
from ckptguard.formats.survey import FolderKind, Survey, survey
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.policy import Limits
from ckptguard.model.report import StepSummary
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

_MAX_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What was asked for, surveyed once."""

    store: Store
    tree: FolderTree
    adapters: tuple[FormatAdapter, ...]
    survey: Survey
    name: str

    @property
    def own_step(self) -> int | None:
        """The step that the folder's own name tells."""
        return None if self.survey.kind is FolderKind.STEPS else parse_step(self.name)


def discover(
    store: Store,
    listing: Listing,
    limits: Limits,
    *,
    step: int | None = None,
    adapters: Sequence[FormatAdapter] | None = None,
) -> Checkpoint:
    """Find the one checkpoint that a folder means, and read its metadata.

    A folder of steps means its newest committed step, or its newest where none is committed.

    Args:
        store: Where it is.
        listing: Everything below the folder, or the one file that was named instead.
        limits: Bounds on metadata.
        step: Another step of a folder of steps.
        adapters: Formats to try; None: all that are installed.

    Returns:
        Without layouts where nothing was recognised: `sightings` then say what was seen,
        and are empty where there is nothing but litter.

    Raises:
        ObjectNotFoundError: There is no such step.
        ConfigError: An adapter is broken.
        StoreError: The store did not deliver.
        LimitExceededError: Beyond `limits`.
    """
    place = _look_at(store, listing, adapters)
    steps = [entry for entry in place.survey.steps if step in {None, entry.step}]
    if step is not None and not steps and place.own_step != step:
        raise ObjectNotFoundError(_no_such_step(step, place.survey.steps))
    return _open(place, newest(steps), limits)


def discover_all(
    store: Store, listing: Listing, limits: Limits, *, adapters: Sequence[FormatAdapter] | None = None
) -> Iterator[Checkpoint]:
    """Find every checkpoint of a folder of steps, oldest first; of any other folder the one.

    Raises:
        ConfigError, StoreError, LimitExceededError: As `discover`.
    """
    place = _look_at(store, listing, adapters)
    for entry in place.survey.steps or (None,):
        yield _open(place, entry, limits)


def _look_at(store: Store, listing: Listing, adapters: Sequence[FormatAdapter] | None) -> _Place:
    tree = index_folders(_as_folder(listing))
    asked = installed_adapters() if adapters is None else tuple(adapters)
    name = (listing.root or store.url.rstrip("/")).rpartition("/")[2]
    return _Place(
        store=store,
        tree=tree,
        adapters=asked,
        survey=survey(tree, asked, root_name=name),
        name=name,
    )


def _as_folder(listing: Listing) -> Listing:
    """Turn the listing of a single file's path into that of its folder, holding this file alone."""
    stat = listing.files.get(listing.root)
    if not listing.root or stat is None or len(listing.files) > 1:
        return listing
    folder, _, name = listing.root.rpartition("/")
    return Listing(root=folder, files={name: stat})


def _open(place: _Place, entry: StepFolder | None, limits: Limits) -> Checkpoint:
    """Read the metadata of one step, or of the folder itself."""
    folder = entry.folder if entry else ""
    step = entry.step if entry else place.own_step
    is_known = place.survey.kind in {FolderKind.CHECKPOINT, FolderKind.STEPS}
    parts = find_parts(place.tree, folder, place.adapters) if is_known else ()
    layouts = open_parts(place.store, place.tree, folder, parts, limits=limits)
    if layouts:
        findings = (*layouts[0].findings, *_facts(place, entry, parts))
        layouts = (replace(layouts[0], findings=findings), *layouts[1:])
    listing = place.tree.listing
    return Checkpoint(
        root=listing.in_store(folder) if folder else listing.root,
        layouts=layouts,
        step=step,
        steps=tuple(other.to_summary() for other in place.survey.steps),
        surroundings=(
            *_pointer_findings(place, folder),
            *(describe_surroundings(place.tree, place.survey, entry) if entry else ()),
            *inner_step(place.tree, folder, step),
        ),
        sightings=() if layouts else _sightings(place, folder),
    )


def _facts(place: _Place, entry: StepFolder | None, parts: Sequence[PartFolder]) -> Iterator[Finding]:
    """Yield what speaks about the whole checkpoint and stands in no part's metadata."""
    folder = entry.folder if entry else ""
    name = folder.rpartition("/")[2] or place.name
    marker = _marker(place, folder)
    if marker is not None or is_unfinished_step(name):
        reason = f"marked as unfinished by {marker}" if marker else "named like a save in progress"
        yield Finding(
            code=FindingCode.UNFINISHED_MARKER,
            check=CheckName.EXISTENCE,
            severity=Severity.UNKNOWN,
            message=f"{name} is {reason}; its data may be complete all the same",
            observed=marker or name,
        )
    elif entry is not None and entry.doubt and not any(part.doubt for part in parts):
        yield Finding(
            code=FindingCode.NOT_COMMITTED,
            check=CheckName.EXISTENCE,
            severity=Severity.ERROR,
            basis=Basis.DAMAGE,
            message=f"{name}: {entry.doubt}",
        )
    yield from map(not_opened, escaping_folders(place.tree, folder))
    owned = frozenset(part.folder for part in parts if part.adapter.name not in SHARING_FORMATS)
    foreign = sightings.foreign_below(place.tree, folder, except_in=owned)
    if foreign is not None:
        yield Finding(
            code=FindingCode.UNKNOWN_LAYOUT,
            check=CheckName.COVERAGE,
            severity=Severity.UNKNOWN,
            message=f"{name} also holds data of a format that is not read: {foreign}",
            observed=foreign,
        )


def _marker(place: _Place, folder: str) -> str | None:
    """Return the name of the marker beside a checkpoint, even where that is outside of the listing."""
    parent, _, name = folder.rpartition("/")
    if folder:
        marker = name + UNFINISHED_SUFFIX
        return marker if marker in place.tree.files.get(parent, ()) else None
    root = place.tree.listing.root
    if not root:
        return None
    try:
        place.store.stat(root + UNFINISHED_SUFFIX)
    except (ObjectNotFoundError, AccessDeniedError, PathEscapeError):
        # S3 answers 403 for an absent key to those who may not list.
        return None
    return root.rpartition("/")[2] + UNFINISHED_SUFFIX


def _pointer_findings(place: _Place, folder: str) -> tuple[Finding, ...]:
    """Hold the pointers beside the steps, and those inside a checkpoint, against what is there."""
    tree, base = place.tree, place.survey.base
    findings: tuple[Finding, ...] = ()
    if place.survey.steps:
        summaries = [step.to_summary() for step in place.survey.steps]
        pointers = read_pointers(place.store, tree, base)
        findings = check_pointers(summaries, pointers, folders=tree.children.get(base, ()))
    inner = [
        StepSummary(step=number, path=child, format="", is_committed=True)
        for child in tree.children.get(folder, ())
        if (number := parse_step(child)) is not None
    ]
    if inner and (folder != base or not place.survey.steps):
        findings += check_pointers(inner, read_pointers(place.store, tree, folder))
    return findings


def _sightings(place: _Place, folder: str) -> tuple[str, ...]:
    rivals = place.survey.rivals
    if rivals:
        shown = ", ".join(rivals[:_MAX_SHOWN])
        return (f"{len(rivals)} folders of steps, name one of them: {shown}",)
    return sightings.describe(place.tree, folder)


def _no_such_step(step: int, steps: Sequence[StepFolder]) -> str:
    if not steps:
        return f"no step {step}: this is not a folder of steps"
    shown = ", ".join(str(entry.step) for entry in steps[-_MAX_SHOWN:])
    return f"no step {step}; the newest of {len(steps)} steps: {shown}"

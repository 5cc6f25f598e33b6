"""One look at everything below a root: every step of every run, and the pointers beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ckptguard.errors import ConfigError
from ckptguard.formats.folder_tree import FolderTree, index_folders
from ckptguard.formats.pointers import POINTER_NAMES
from ckptguard.formats.protocol import FormatAdapter
from ckptguard.formats.steps import StepFolder, is_unfinished_name, parse_step
from ckptguard.formats.survey import FolderKind, steps_among, survey, unfinished_in
from ckptguard.operations.adopt.folder_layout import FolderLayout
from ckptguard.operations.adopt.found import Found, describe
from ckptguard.operations.adopt.listed_store import ListedStore, list_once
from ckptguard.operations.adopt.pointer_faults import PointerFault, find_pointer_faults
from ckptguard.storage.protocol import Store

_MAX_RIVALS_TOLD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What was seen.

    Args:
        store: As it was listed.
        tree: All names.
        found: Every step, in the order of runs, then of steps as numbers.
        unfinished: Names of saves in progress beside the steps.
        faults: Of pointers.
    """

    store: ListedStore
    tree: FolderTree
    found: tuple[Found, ...] = ()
    unfinished: tuple[str, ...] = ()
    faults: tuple[PointerFault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How folders tell their run and step.

    Args:
        run: Of everything; None: the layout tells.
        layout: Which folders are steps; None: those with the names that trainers give, found by format.

    Raises:
        ConfigError: Nothing tells the run, or both do.
    """

    run: str | None = None
    layout: FolderLayout | None = None

    def __post_init__(self) -> None:
        """Hold that the run is told exactly once."""
        is_in_layout = self.layout is not None and self.layout.names_runs
        if self.run is None and not is_in_layout:
            msg = "name the run: --run NAME, or {run} in --layout"
            raise ConfigError(msg)
        if self.run is not None and is_in_layout:
            msg = "the run is named twice: --run, and {run} in --layout"
            raise ConfigError(msg)


def sweep(store: Store, prefix: str, naming: Naming, adapters: Sequence[FormatAdapter]) -> Sweep:
    """List a root once, and say what stands in it. Only pointers are opened.

    Raises:
        ConfigError: Several folders of steps, and no layout says whose they are.
        StoreError, LimitExceededError: It could not be listed.
    """
    listing = list_once(store, prefix)
    tree = index_folders(listing)
    name = (listing.root or store.url.rstrip("/")).rpartition("/")[2]
    runs = dict(_runs(tree, naming, adapters, root_name=name))
    listed = ListedStore(store, listing)
    bases = _bases(runs)
    return Sweep(
        store=listed,
        tree=tree,
        found=tuple(
            describe(tree, run, step, adapters) for run, steps in sorted(runs.items()) for step in steps
        ),
        unfinished=tuple(path for base in sorted(bases) for path in unfinished_in(tree, base)),
        faults=tuple(
            fault
            for base, (run, steps) in sorted(bases.items())
            for fault in find_pointer_faults(listed, tree, base, run=run, steps=steps)
        ),
    )


def _runs(
    tree: FolderTree, naming: Naming, adapters: Sequence[FormatAdapter], *, root_name: str
) -> Iterator[tuple[str, tuple[StepFolder, ...]]]:
    if naming.layout is not None:
        yield from _laid_out(tree, naming.layout, adapters, run=naming.run)
        return
    assert naming.run is not None  # noqa: S101 - a rule of Naming
    seen = survey(tree, adapters, root_name="" if _is_only_steps(tree) else root_name)
    if seen.kind is FolderKind.AMBIGUOUS:
        shown = ", ".join(seen.rivals[:_MAX_RIVALS_TOLD])
        msg = (
            f"{len(seen.rivals)} folders of steps: {shown}; name one of them, or say with --layout which "
            "folder is which run"
        )
        raise ConfigError(msg)
    step = parse_step(root_name)
    if seen.kind is FolderKind.CHECKPOINT and step is not None:
        yield naming.run, steps_among(tree, {"": step}, adapters)
    elif seen.steps:
        yield naming.run, seen.steps


def _is_only_steps(tree: FolderTree) -> bool:
    """Say whether a root holds nothing of its own: then it is no step, even if it is called `ckpt1`.

    A step that holds step folders, as DeepSpeed's below Hugging Face's, has files of its own.
    """
    names = {*tree.files.get("", ()), *tree.children.get("", ())} - set(POINTER_NAMES)
    return bool(names) and all(parse_step(name) is not None or is_unfinished_name(name) for name in names)


def _laid_out(
    tree: FolderTree, layout: FolderLayout, adapters: Sequence[FormatAdapter], *, run: str | None
) -> Iterator[tuple[str, tuple[StepFolder, ...]]]:
    matches = ((folder, layout.match(folder)) for folder in _at_depth(tree, "", layout.depth))
    named = [(match[0] or run or "", folder, match[1]) for folder, match in matches if match is not None]
    for name, members in groupby(sorted(named), key=lambda member: member[0]):
        yield name, steps_among(tree, {folder: step for _, folder, step in members}, adapters)


def _at_depth(tree: FolderTree, folder: str, depth: int) -> Iterator[str]:
    if not depth:
        yield folder
        return
    for child in tree.children.get(folder, ()):
        yield from _at_depth(tree, f"{folder}/{child}" if folder else child, depth - 1)


def _bases(
    runs: Mapping[str, Sequence[StepFolder]],
) -> dict[str, tuple[str, list[StepFolder]]]:
    """Return the folders that hold steps, each with its run and those steps."""
    bases: dict[str, tuple[str, list[StepFolder]]] = {}
    for run, steps in runs.items():
        for step in steps:
            if step.folder:
                bases.setdefault(step.folder.rpartition("/")[0], (run, []))[1].append(step)
    return bases

"""The parts of one checkpoint: which folders hold one, and their layouts, seen from its root."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ckptguard.formats.folder_tree import FolderTree, is_litter_folder, join
from ckptguard.formats.protocol import FormatAdapter
from ckptguard.formats.sightings import is_torch_checkpointing
from ckptguard.formats.steps import commit_doubt, is_unfinished_name
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat, Store

MAX_DEPTH: Final = 3
"""Levels between a checkpoint's root and its parts (verl: `actor/huggingface`)."""
SHARING_FORMATS: Final = frozenset({"safetensors", "torch_save"})
"""Formats that answer for their own files only; every other one owns all of its folder.

`common.pt` (Megatron) and `meta.pt` (Lightning) are sidecars of the DCP part that they stand in;
`optimizer.bin` beside `model.safetensors` (Accelerate) is a part of its own.
"""
_PART_WORDS: Final = re.compile(
    r"actor|checkpoint|ckpt|critic|dcp|ema|fsdp|model|module|optim|shard|state|weight", re.IGNORECASE
)
_COMPANION: Final = re.compile(
    r"(.*/)?(rng_state(_\d+)?\.pth|random_states_\d+\.pkl|(scheduler|sampler)(_\d+)?\.(bin|pt)|scaler\.pt"
    r"|(dl_state_dict|training_args)(_\d+)?\.bin|custom_checkpoint_\d+\.pkl)"
    r"|train/rank\d+\.pt"
)
"""What stands beside DCP parts of Accelerate (utils/constants.py), the HF Trainer (trainer.py), and OLMo-core
(train/checkpoint.py)."""
_METADATA_SUFFIX: Final = ".metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFolder:
    """A folder that an adapter recognises.

    Args:
        folder: Relative to the tree's listing.
        adapter: Who recognises it.
        doubt: Why names alone say that it is not committed.
    """

    folder: str
    adapter: FormatAdapter
    doubt: str | None


def find_parts(tree: FolderTree, root: str, adapters: Sequence[FormatAdapter]) -> tuple[PartFolder, ...]:
    """Find every part of the checkpoint at `root`, from names alone; parents first.

    Args:
        tree: Names.
        root: The checkpoint's folder.
        adapters: In the order in which they are asked.
    """
    found: list[PartFolder] = []
    owned: set[str] = set()
    for folder in tree.folders_below(root, max_depth=MAX_DEPTH):
        if folder != root and (is_unfinished_name(_name(folder)) or linked_sibling(tree, folder)):
            continue
        here = parts_in(tree, folder, adapters)
        if _parent(folder) in owned or any(_owns(part.adapter) for part in here):
            owned.add(folder)
        # Torch files below a DCP folder (`iter_7/rerun/state.pt`) are its sidecars.
        is_inside = folder != root and _parent(folder) in owned
        found += [part for part in here if not (is_inside and part.adapter.name == "torch_save")]
    return tuple(found)


def parts_in(tree: FolderTree, folder: str, adapters: Sequence[FormatAdapter]) -> tuple[PartFolder, ...]:
    """Return the parts that stand directly in one folder; several only of formats that share."""
    names = tree.files.get(folder, ())
    if not names:
        return ()
    shallow = tree.shallow(folder)
    hits = [adapter for adapter in adapters if adapter.recognises(shallow)]
    if is_torch_checkpointing(names):
        hits = [adapter for adapter in hits if adapter.name != "torch_save"]
    owner = next((adapter for adapter in hits if _owns(adapter)), None)
    return tuple(
        PartFolder(folder=folder, adapter=adapter, doubt=commit_doubt(adapter.name, names))
        for adapter in ([owner] if owner else hits)
    )


def open_parts(
    store: Store, tree: FolderTree, root: str, parts: Sequence[PartFolder], *, limits: Limits
) -> tuple[Layout, ...]:
    """Read the metadata of each part.

    Returns:
        Layouts whose paths are relative to `root`. A file is a shard of one of them, or a
        sidecar, never both.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: Beyond `limits`.
    """
    layouts = [layout for part in parts for layout in _open_part(store, tree, root, part, limits)]
    shards = {shard.path for layout in layouts for shard in layout.shards}
    has_dcp = any(layout.format == "dcp" for layout in layouts)
    return tuple(
        replace(
            layout,
            sidecars=tuple(path for path in layout.sidecars if path not in shards),
            is_companion=has_dcp and _is_companion(layout),
        )
        for layout in layouts
    )


def linked_sibling(tree: FolderTree, folder: str) -> str | None:
    """Return the name of the folder that this one is a link to (`latest -> step-200`); None for others.

    A listing shows the same files in both: same names, same versions.
    """
    own = _versions(tree, folder)
    if own is None:
        return None
    parent, _, name = folder.rpartition("/")
    siblings = [child for child in tree.children.get(parent, ()) if child != name]
    return next(
        (child for child in siblings if _versions(tree, join(parent, child), is_link=False) == own), None
    )


def escaping_folders(tree: FolderTree, root: str) -> tuple[str, ...]:
    """Return links out of the store's root that may be whole parts (`optimizer_0 -> /elsewhere`).

    Args:
        tree: Names.
        root: The checkpoint's folder; paths are relative to it.
    """
    return tuple(path for path in tree.listing.below(root).escapes if _may_be_a_part(path))


def _may_be_a_part(path: str) -> bool:
    *above, name = path.split("/")
    is_reached = len(above) < MAX_DEPTH and not any(map(is_litter_folder, above))
    return is_reached and "." not in name and _PART_WORDS.search(name) is not None


def place(layout: Layout, folder: str) -> Layout:
    """Return a layout whose paths count from a folder further up.

    Args:
        layout: Paths relative to the part's own folder.
        folder: That folder, relative to the new root; "" changes nothing.
    """
    if not folder:
        return layout
    return replace(
        layout,
        part=join(folder, layout.part),
        metadata_files=tuple(replace(file, path=join(folder, file.path)) for file in layout.metadata_files),
        shards=tuple(replace(shard, path=join(folder, shard.path)) for shard in layout.shards),
        findings=tuple(
            replace(finding, file=join(folder, finding.file)) if finding.file else finding
            for finding in layout.findings
        ),
        sidecars=tuple(join(folder, path) for path in layout.sidecars),
    )


def _is_companion(layout: Layout) -> bool:
    paths = [shard.path for shard in layout.shards]
    return layout.format == "torch_save" and bool(paths) and all(map(_COMPANION.fullmatch, paths))


def _owns(adapter: FormatAdapter) -> bool:
    return adapter.name not in SHARING_FORMATS


def _open_part(
    store: Store, tree: FolderTree, root: str, part: PartFolder, limits: Limits
) -> Iterator[Layout]:
    listing = tree.listing.below(part.folder)
    inner = part.folder.removeprefix(root).strip("/")
    escaped = [name for name in listing.escapes if "/" not in name and name.endswith(_METADATA_SUFFIX)]
    if escaped and _owns(part.adapter):  # without it, the adapter would take the part for uncommitted
        findings = tuple(map(not_opened, escaped))
        yield place(Layout(format=part.adapter.name, findings=findings), inner)
        return
    layouts = part.adapter.open(store, listing, limits)
    hidden = [] if _owns(part.adapter) else _hidden_files(part.adapter, listing, layouts)
    for layout in layouts:
        yield place(replace(layout, findings=(*layout.findings, *map(not_opened, hidden))), inner)
        hidden = []


def _hidden_files(adapter: FormatAdapter, listing: Listing, layouts: Sequence[Layout]) -> list[str]:
    """Return links out of the root that would be files of this part, and stand in no layout."""
    known = {shard.path for layout in layouts for shard in layout.shards}
    known |= {finding.file for layout in layouts for finding in layout.findings if finding.file}
    return [
        name
        for name in listing.escapes
        if "/" not in name
        and name not in known
        and adapter.recognises(Listing(root="", files={name: ObjectStat(path=name, length_bytes=0)}))
    ]


def not_opened(path: str) -> Finding:
    """Say that something of a checkpoint is a link out of the root, and was left alone."""
    return Finding(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=f"{path} is a link out of the allowed root, or not a regular file; it was not opened",
        file=path,
        expected="a regular file inside the root",
        observed="a link out of it, or another kind of file",
    )


def _versions(
    tree: FolderTree, folder: str, *, is_link: bool = True
) -> frozenset[tuple[str, str | None]] | None:
    """Return names and versions in a folder; None unless there are some and all (or none) are links."""
    stats: list[tuple[str, str | None]] = []
    for inner in tree.folders_below(folder, max_depth=MAX_DEPTH):
        for name in tree.files.get(inner, ()):
            path = join(inner, name)
            stat = tree.listing.files.get(path)
            if stat is None or stat.is_link is not is_link:
                return None
            stats.append((path.removeprefix(folder), stat.version))
    return frozenset(stats) or None


def _name(folder: str) -> str:
    return folder.rpartition("/")[2]


def _parent(folder: str) -> str:
    return folder.rpartition("/")[0]

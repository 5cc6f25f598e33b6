"""What a user tells of a save, and what follows from it for one folder."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptguard.errors import ConfigError
from ckptguard.formats.steps import parse_step
from ckptguard.model.manifest_laws import (
    integer_problems,
    json_problems,
    label_problems,
    path_problems,
    repetition_problems,
)
from ckptguard.model.policy import Depth

_UNNAMED: Final = "unnamed"
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFacts:
    """What only the training job knows; everything may be left out.

    Args:
        run: Training lineage. None: a manifest is left, and nothing is registered.
        step: Optimizer step. None: what the name of the checkpoint's folder tells.
        part: Folder of this part in the checkpoint. None: told from `root` and `parts`.
        parts: All parts of the checkpoint, this one too; they are saved one after the other.
        root: Folder of the checkpoint. None: the writer's own, or that above its part.
        final_path: Where the checkpoint's folder will be once the trainer has renamed it.
        save_id: Tells two saves of one step apart. None: a new one for each save.
        branch: Of the run; None: the one that this start of the job opened, where that is known, else the
            service's choice.
        depth: Of the validation.
        is_validated: Ask for a verdict.
        is_announced: Tell the service when the save begins.
        is_held: Register only at `release`: the trainer writes other files after this. Not for saves that
            another process makes (`AsyncCheckpointerType.PROCESS`).
        fingerprints: Name to text, e.g. `config` to `sha256:…`.
        annotations: Anything that is JSON.
    """

    run: str | None = None
    step: int | None = None
    part: str | None = None
    parts: tuple[str, ...] = ()
    root: str | None = None
    final_path: str | None = None
    save_id: str | None = None
    branch: int | None = None
    depth: Depth = Depth.LOAD
    is_validated: bool = True
    is_announced: bool = True
    is_held: bool = False
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make paths texts; raise every problem at once.

        Raises:
            ConfigError: The manifest of such a save would be unlawful.
        """
        object.__setattr__(self, "parts", tuple(self.parts))
        for name in ("root", "final_path"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else folder_text(given))
        problems = list(_problems(self))
        if problems:
            raise ConfigError("; ".join(problems))


def _problems(facts: SaveFacts) -> Iterator[str]:
    for name in ("run", "save_id"):
        text = getattr(facts, name)
        if text is not None:
            yield from label_problems(text, at=name)
    if facts.step is not None:
        yield from integer_problems(facts.step, at="step")
    for part in (*facts.parts, *(() if facts.part is None else (facts.part,))):
        yield from path_problems(part, at="part")
    yield from repetition_problems(facts.parts, at="parts")
    if facts.part is not None and facts.parts and facts.part not in facts.parts:
        yield f"part: not one of parts: {facts.part!r}"
    for name, text in facts.fingerprints.items():
        yield from label_problems(name, at="fingerprints")
        yield from label_problems(text, at=f"fingerprints/{name}")
    yield from json_problems(dict(facts.annotations), at="annotations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One save in its folders.

    Args:
        run: As the manifest names it.
        step: Of the checkpoint; None: nothing tells it.
        folder: Where this part is written.
        root: Of the checkpoint, while it is written.
        final_root: Of the checkpoint, once the trainer is done with it.
        part: Of the checkpoint, where it has several.
    """

    run: str
    step: int | None
    folder: str
    root: str
    final_root: str
    part: str | None


def facts_for(facts: SaveFacts, *, described: str, folder: str) -> SaveFacts:
    """Return what still holds of the facts when the writer was sent to another folder since.

    Args:
        facts: As the user gave them.
        described: The folder that they were given for.
        folder: Where the save goes (`checkpoint_id=` of `dcp.save`).
    """
    if folder == described:
        return facts
    is_below_root = facts.root is not None and f"{folder}/".startswith(f"{facts.root}/")
    return replace(facts, step=None, part=None, root=facts.root if is_below_root else None, final_path=None)


def place_of(facts: SaveFacts, folder: str) -> Place:
    """Return where a save is and will be.

    Raises:
        ConfigError: `part` is no folder of the checkpoint, or the writer's folder is not that part.
    """
    part = facts.part or _told_part(facts, folder)
    root = facts.root or (folder.removesuffix(f"/{part}") if part is not None else folder)
    if folder != (root if part is None else f"{root}/{part}"):
        msg = f"{folder} is not part {part!r} of {root}"
        raise ConfigError(msg)
    final_root = facts.final_path or root
    step = facts.step
    if step is None:
        step = _told_step(final_root)
    run = facts.run or root.rpartition("/")[0].rpartition("/")[2] or _UNNAMED
    return Place(run=run, step=step, folder=folder, root=root, final_root=final_root, part=part)


def _told_part(facts: SaveFacts, folder: str) -> str | None:
    if facts.root is not None and folder != facts.root:
        return folder.removeprefix(f"{facts.root}/")
    return next((part for part in facts.parts if folder.endswith(f"/{part}")), None)


def _told_step(folder: str) -> int | None:
    return parse_step(folder.rpartition("/")[2])


def folder_text(path: str | os.PathLike[str]) -> str:
    """Return a folder as an absolute path or a URL, without a closing `/`; no disk is asked."""
    text = os.fspath(path)
    if _URL.match(text):
        return text.rstrip("/")
    return os.path.abspath(text)  # noqa: PTH100 - pathlib has none that leaves links alone

"""Pickles that would run code, or name classes nobody here has, in every place that holds pickles."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from ckptguard.model.finding import Basis
from ckptguard.model.finding import FindingCode as Code
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Expectation, Scene, invalid, unknown, valid
from ckptguard.testing.hostile import (
    FOREIGN_MODULE,
    FOREIGN_MODULE_RENAMED,
    Evaluates,
    Foreign,
    RunsCommand,
)
from ckptguard.testing.own_metadata import METADATA, edit_metadata
from ckptguard.testing.saves import BASE, EXECUTED_MARKER


def _plant(scene: Scene, *, make: Callable[[Path], object]) -> Damage:
    """Put an object where torch keeps the planner's own data, beside what is there."""
    bait = make(scene.saves / EXECUTED_MARKER)

    def change(metadata: Any) -> None:  # noqa: ANN401 - torch's Metadata
        metadata.planner_data = {"": bait, **metadata.planner_data}

    edit_metadata(scene.folder, change)
    _rename_foreign_class(scene.folder, METADATA)
    return Damage(kind="planted_object", file=METADATA)


def _rename_foreign_class(folder: Path, file: str) -> None:
    """Let the class be one of a package that is not installed, without changing a length."""
    path = folder / file
    whole = path.read_bytes()
    with edits.times_kept(path):
        path.write_bytes(whole.replace(FOREIGN_MODULE, FOREIGN_MODULE_RENAMED))


def _as_saved(_scene: Scene) -> Damage:
    """Change nothing: the object was saved by the trainer itself."""
    return Damage(kind="as_saved")


def _case(
    name: str,
    expected: Expectation,
    *,
    source: str,
    base: str = BASE,
    arrange: Callable[[Scene], Damage] = _as_saved,
) -> Case:
    return Case(name=name, source=source, base=base, arrange=arrange, expected=expected)


_METADATA_UNSAFE: Final = invalid(Code.UNSAFE_PICKLE, basis=Basis.UNSAFE, file=METADATA)
_ITEM_UNSAFE: Final = invalid(Code.UNSAFE_PICKLE, basis=Basis.UNSAFE, file="__0_0.distcp", fqn="obj")
_FILE_UNSAFE: Final = invalid(Code.UNSAFE_PICKLE, basis=Basis.UNSAFE, file="model.pt")

PICKLES: Final[tuple[Case, ...]] = (
    _case(
        "dcp/hostile_metadata_system",
        _METADATA_UNSAFE,
        source="B24",
        arrange=partial(_plant, make=RunsCommand),
    ),
    _case(
        "dcp/hostile_metadata_eval",
        _METADATA_UNSAFE,
        source="B24",
        arrange=partial(_plant, make=Evaluates),
    ),
    _case("dcp/hostile_item_system", _ITEM_UNSAFE, source="B24", base="hostile_system"),
    _case("dcp/hostile_item_eval", _ITEM_UNSAFE, source="B24", base="hostile_eval"),
    _case(
        "dcp/foreign_class_in_metadata",
        unknown(Code.UNKNOWN_GLOBAL, file=METADATA),
        source="B24, F23",
        arrange=partial(_plant, make=lambda _marker: Foreign()),
    ),
    _case(
        "dcp/foreign_class_in_item",
        valid(Code.OBJECT_NOT_BUILT),
        source="B23; design 3, Unknown globals",
        base="foreign_object",
    ),
    _case("torch_save/hostile_system", _FILE_UNSAFE, source="B24", base="hostile_system_torch_save"),
    _case("torch_save/hostile_eval", _FILE_UNSAFE, source="B24", base="hostile_eval_torch_save"),
)

"""The cases themselves: each can be set up, changes what it says and nothing else."""

import re
from pathlib import Path

import pytest

from ckptguard.testing.case import Case, Scene
from ckptguard.testing.corruptions import CORRUPTIONS
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.traps import TRAPS

pytestmark = pytest.mark.torch

_ALL = (*CORRUPTIONS, *TRAPS)
_OWN = tuple(case for case in _ALL if not case.is_corpus)
_FLIPS = tuple(case for case in _OWN if "/bit_flip" in case.name)


def _contents(folder: Path) -> dict[str, tuple[float, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_name_is_unique() -> None:
    names = [case.name for case in _ALL]
    assert sorted(set(names)) == sorted(names)


def test_every_corruption_is_named_by_its_format() -> None:
    assert not [case.name for case in CORRUPTIONS if not re.fullmatch(r"[a-z_]+/[a-z0-9_]+", case.name)]


@pytest.mark.parametrize("case", _OWN, ids=lambda case: case.name)
def test_every_case_can_be_set_up_and_its_base_stays(case: Case, saves_dir: Path, tmp_path: Path) -> None:
    before = _contents(saves_dir / case.base)
    folder = copy_checkpoint(saves_dir / case.base, tmp_path / "copy")
    clean = _contents(folder)

    damage = case.arrange(Scene(folder=folder, saves=saves_dir))

    assert _contents(saves_dir / case.base) == before
    assert (_contents(folder) == clean) == (damage.kind in {"as_saved", "pointer_absent"})
    assert (folder / case.target).is_dir()


@pytest.mark.parametrize(
    "case",
    [case for case in CORRUPTIONS if "/bit_flip" in case.name and not case.is_corpus],
    ids=lambda case: case.name,
)
def test_a_flip_changes_one_bit_and_no_time(case: Case, saves_dir: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(saves_dir / case.base, tmp_path / "copy")
    clean = _contents(folder)
    damage = case.arrange(Scene(folder=folder, saves=saves_dir))
    damaged = _contents(folder)

    changed = {name for name in clean if clean[name] != damaged[name]}
    assert changed == {damage.file}
    (time_before, before), (time_after, after) = clean[damage.file], damaged[damage.file]
    assert time_before == time_after
    differing = [
        (offset, one ^ other)
        for offset, (one, other) in enumerate(zip(before, after, strict=True))
        if one != other
    ]
    assert damage.bit is not None
    assert differing == [(damage.offset, 1 << damage.bit)]


def test_saving_hostile_objects_runs_nothing(saves_dir: Path) -> None:
    assert not (saves_dir / "EXECUTED").exists()

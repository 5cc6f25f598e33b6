"""Every named corruption: right verdict, right code, right file."""

from pathlib import Path

import pytest

from ckptguard.operations.validate import validate
from ckptguard.testing.case import Case, Scene, mismatches
from ckptguard.testing.corruptions import CORRUPTIONS
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.save_manifest import leave_manifest
from ckptguard.testing.saves import EXECUTED_MARKER

pytestmark = pytest.mark.torch

_OWN_CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
_WITH_MANIFEST = tuple(case for case in CORRUPTIONS if case.with_manifest is not None)


def _base(case: Case, saves_dir: Path) -> Path:
    return (_OWN_CORPUS if case.is_corpus else saves_dir) / case.base


def _arranged(case: Case, scene: Scene) -> str:
    """Arrange the case; return what was done, for the message of a failure."""
    return f"{case.name} ({case.source}): {case.arrange(scene)}"


@pytest.mark.parametrize("case", CORRUPTIONS, ids=lambda case: case.name)
def test_every_corruption_gets_its_verdict(case: Case, saves_dir: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(_base(case, saves_dir), tmp_path / "checkpoint")
    what = _arranged(case, Scene(folder=folder, saves=saves_dir))

    report = validate(str(folder / case.target), policy=case.policy)

    assert not mismatches(case.expected, report), what
    assert not (saves_dir / EXECUTED_MARKER).exists(), f"{what}: code of the checkpoint ran"


@pytest.mark.parametrize("case", _WITH_MANIFEST, ids=lambda case: case.name)
def test_a_save_time_manifest_sees_every_change(case: Case, saves_dir: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(_base(case, saves_dir), tmp_path / "checkpoint")
    leave_manifest(folder, format_name=case.name.partition("/")[0])
    what = _arranged(case, Scene(folder=folder, saves=saves_dir))
    assert case.with_manifest is not None

    report = validate(str(folder / case.target), policy=case.policy)

    assert not mismatches(case.with_manifest, report), what

"""Every named trap looks bad and is fine: none may be called INVALID."""

from pathlib import Path

import pytest

from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing.case import Case, Scene, mismatches
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.traps import TRAPS

pytestmark = pytest.mark.torch

_OWN_CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"


def test_no_trap_expects_invalid() -> None:
    assert not [trap.name for trap in TRAPS if trap.expected.verdict is Verdict.INVALID]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_every_trap_gets_its_verdict(trap: Case, saves_dir: Path, tmp_path: Path) -> None:
    source = (_OWN_CORPUS if trap.is_corpus else saves_dir) / trap.base
    folder = copy_checkpoint(source, tmp_path / "checkpoint")
    what = f"{trap.name}: {trap.arrange(Scene(folder=folder, saves=saves_dir))}"

    report = validate(str(folder / trap.target), policy=trap.policy)

    assert not mismatches(trap.expected, report), what

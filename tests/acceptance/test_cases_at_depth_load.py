"""The same cases with the load: a canary changes no verdict, and nothing of a checkpoint runs in it."""

from dataclasses import replace
from pathlib import Path

import pytest

from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Assurance, Judgement, Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing.case import Case, Scene, mismatches
from ckptguard.testing.corruptions import CORRUPTIONS
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.saves import BASE, EXECUTED_MARKER
from ckptguard.testing.traps import TRAPS

pytestmark = pytest.mark.torch

_QUICK = ("/hostile_item", "F00 plain save", "dcp/bit_flip_payload")
_CASES = tuple(case for case in (*CORRUPTIONS, *TRAPS) if not case.is_corpus)


def _parameter(case: Case) -> object:
    is_quick = any(word in case.name for word in _QUICK)
    return pytest.param(case, id=case.name, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("case", [_parameter(case) for case in _CASES])
def test_the_load_changes_no_verdict_and_runs_nothing(case: Case, saves_dir: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(saves_dir / case.base, tmp_path / "checkpoint")
    what = f"{case.name}: {case.arrange(Scene(folder=folder, saves=saves_dir))}"

    report = validate(str(folder / case.target), policy=replace(case.policy, depth=Depth.LOAD))

    assert not mismatches(case.expected, report), what
    assert not (saves_dir / EXECUTED_MARKER).exists(), f"{what}: code of the checkpoint ran"


def test_a_plain_save_is_loaded(saves_dir: Path) -> None:
    report = validate(str(saves_dir / BASE), policy=Policy(settle_s=0))
    assert report.judgement == Judgement(verdict=Verdict.VALID, assurance=Assurance.LOADED)

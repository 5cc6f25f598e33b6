"""Every change of a guarded save is found, in every layout (reduced; `make prove`)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing.guarded_trials import GuardedSave, Mixture, is_healthy, run_guarded_trials
from tests.kills.guarded_layouts import LAYOUTS, write_guarded_saves
from tests.kills.guarded_saves import running_server

pytestmark = pytest.mark.torch

_POLICY = Policy(depth=Depth.CONTENT, settle_s=0, jobs=1)
_SEEDS_EACH = 16


@pytest.fixture(scope="module")
def guarded_saves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GuardedSave]]:
    """Save in every layout, once."""
    with running_server() as server:
        saves = write_guarded_saves(server, tmp_path_factory.mktemp("guarded"))
        yield {save.name: save for save in saves}


def _judge(folder: Path) -> Verdict:
    return validate(str(folder), policy=_POLICY).judgement.verdict


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_guarded_save_is_proven(layout: str, guarded_saves: dict[str, GuardedSave]) -> None:
    assert is_healthy(validate(str(guarded_saves[layout].folder), policy=_POLICY))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_change_is_found(layout: str, guarded_saves: dict[str, GuardedSave]) -> None:
    first = list(LAYOUTS).index(layout) * _SEEDS_EACH
    results = list(run_guarded_trials(guarded_saves[layout], range(first, first + _SEEDS_EACH), _judge))
    assert sum(result.is_change for result in results) > _SEEDS_EACH // 2
    assert [each for each in results if each.is_change and each.verdict is Verdict.VALID] == []


def test_the_trials_damage_shards_and_metadata_in_every_way(guarded_saves: dict[str, GuardedSave]) -> None:
    results = list(run_guarded_trials(guarded_saves["2 ranks"], range(150), lambda _: Verdict.VALID))
    assert {result.fault for result in results} >= {*Mixture}
    assert {result.damage.file for result in results} >= {"__0_0.distcp", "__1_0.distcp", ".metadata"}

"""DeepSpeed ZeRO: how many ranks saved, as the files themselves say it."""

import pickle
from typing import Any

import pytest

from ckptguard.formats.deepspeed import MAX_STATES, read_zero_facts
from ckptguard.formats.torch_save import ADAPTER
from ckptguard.model.finding import Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.memory import MemoryStore
from ckptguard.testing.torch_zip_bytes import build_zip

MODEL = "mp_rank_00_model_states.pt"


def optim(rank: int) -> str:
    return f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def torch_file(value: object) -> bytes:
    return build_zip(pickle.dumps(value, protocol=2), {})


def optimizer(partitions: object) -> bytes:
    return torch_file({"optimizer_state_dict": {"partition_count": partitions}, "ds_version": "0.19.8"})


def states(*, world: object = 2, step: object = 10) -> bytes:
    return torch_file({"module": {}, "dp_world_size": world, "global_steps": step})


def missing(files: dict[str, bytes]) -> list[str]:
    store = MemoryStore(files)
    (layout,) = ADAPTER.open(store, list_folder(store, "", max_files=1000), Limits())
    return [shard.path for shard in layout.shards if shard.path not in files]


@pytest.mark.parametrize("partitions", [3, [3], [3, 1]], ids=["ZeRO 3", "ZeRO 1", "with experts"])
def test_ranks_after_the_last_that_is_here_are_missed(partitions: object) -> None:
    files = {optim(0): optimizer(partitions), MODEL: states(world=3)}
    assert missing(files) == [optim(1), optim(2)]


def test_mics_saves_fewer_parts_than_it_has_ranks() -> None:
    files = {optim(0): optimizer(2), optim(1): optimizer(2), MODEL: states(world=4)}
    assert missing(files) == []


@pytest.mark.parametrize("partitions", [None, "2", -1, 1 << 40, [], {"a": 2}])
def test_what_says_nothing_demands_nothing(partitions: object) -> None:
    assert missing({optim(0): optimizer(partitions), MODEL: states(world=5)}) == []


def test_a_gap_is_missed_whatever_the_files_say() -> None:
    assert missing({optim(0): b"junk", optim(2): b"junk"}) == [optim(1)]


def test_another_rank_tells_where_the_first_cannot_be_read() -> None:
    assert missing({optim(0): b"junk", optim(1): optimizer(3), MODEL: states(world=3)}) == [optim(2)]


def findings_of(files: dict[str, bytes]) -> list[tuple[str, Severity, str | None]]:
    store = MemoryStore(files)
    facts = read_zero_facts(store, list_folder(store, "", max_files=1000), sorted(files))
    return [(finding.code.value, finding.severity, finding.file) for finding in facts.findings]


def rank_states(rank: int) -> str:
    return f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"


def test_model_states_of_two_steps_are_a_mixture() -> None:
    files: dict[str, Any] = {rank_states(rank): states(step=10) for rank in range(3)}
    assert findings_of(files) == []
    files[rank_states(2)] = states(step=20)
    assert findings_of(files) == [("mixed_saves", Severity.UNKNOWN, rank_states(2))]


def test_of_very_many_ranks_steps_are_not_compared() -> None:
    files = {rank_states(rank): states(step=rank) for rank in range(MAX_STATES + 1)}
    assert findings_of(files) == []


def test_other_files_are_not_read() -> None:
    assert findings_of({"model.pt": states(), "optimizer.pt": b""}) == []


def test_a_pickle_longer_than_the_first_read_is_read_whole() -> None:
    value = {"filling": "x" * (300 << 10), "optimizer_state_dict": {"partition_count": 2}}
    assert missing({optim(0): torch_file(value), MODEL: states()}) == [optim(1)]

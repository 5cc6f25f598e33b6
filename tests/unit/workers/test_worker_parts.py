"""The small parts of a worker: waits, stops, stores, and what its children may know."""

import random
import time

import pytest

from ckptguard.errors import ConfigError, ServiceError
from ckptguard.testing.fakes import FakeClock
from ckptguard_workers.backoff import Backoff
from ckptguard_workers.drain import Drain
from ckptguard_workers.environment import forget_secrets, s3_options
from ckptguard_workers.lease import lease_from_json
from ckptguard_workers.machine_stores import MachineStore, parse_stores
from ckptguard_workers.ranks import Rank
from ckptguard_workers.validation import Machine


def test_waits_grow_to_their_bound_and_begin_anew() -> None:
    backoff = Backoff(random.Random(7), first_s=1.0, longest_s=8.0)  # noqa: S311 - a seeded test
    waits = [backoff.next_s() for _ in range(6)]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, (1, 2, 4, 8, 8, 8), strict=True))
    backoff.reset()
    assert backoff.next_s() <= 1.0


def test_the_first_ask_leaves_time_and_the_second_none() -> None:
    clock = FakeClock()
    drain = Drain(clock, drain_s=60.0)
    assert (drain.is_asked, drain.is_over) == (False, False)
    drain.ask()
    assert (drain.is_asked, drain.is_over) == (True, False)
    drain.ask()
    assert drain.is_over


def test_time_runs_out_by_itself() -> None:
    clock = FakeClock()
    drain = Drain(clock, drain_s=60.0)
    drain.ask()
    clock.sleep(60.0)
    assert drain.is_over


def test_an_ask_ends_one_wait_and_not_all_that_follow() -> None:
    drain = Drain(FakeClock(), drain_s=60.0)
    drain.ask()
    started = time.monotonic()
    drain.wait(60.0)
    assert time.monotonic() - started < 30
    drain.wait(0.05)
    assert time.monotonic() - started >= 0.05


def test_stores_are_names_and_roots_of_this_machine() -> None:
    found = parse_stores(["demo=/data/ckpts", "far=s3://bucket/p", "there"], {"far": {"key": "k"}})
    assert found == {
        "demo": MachineStore(url="/data/ckpts"),
        "far": MachineStore(url="s3://bucket/p", options={"key": "k"}),
        "there": MachineStore(),
    }
    assert parse_stores(["*", "far=s3://bucket/p"], {"far": {"key": "k"}}, s3_options={"key": "ambient"}) == {
        "*": MachineStore(s3_options={"key": "ambient"}),
        "far": MachineStore(url="s3://bucket/p", options={"key": "k"}),
    }
    machine = Machine(stores=found)
    assert machine.store_of("demo", "file:///elsewhere") == ("/data/ckpts", {})
    assert machine.store_of("there", "file:///here") == ("file:///here", {})
    with pytest.raises(ServiceError, match="does not map"):
        machine.store_of("elsewhere", "file:///etc")


def test_a_worker_of_every_store_takes_each_where_the_service_has_it() -> None:
    stores = parse_stores(["*", "here=/mine"], s3_options={"key": "ambient"})
    machine = Machine(stores=stores)
    assert machine.store_of("here", "file:///theirs") == ("/mine", {})
    assert machine.store_of("any", "file:///theirs") == ("file:///theirs", {})
    assert machine.store_of("any", "s3://bucket/p") == ("s3://bucket/p", {"key": "ambient"})
    strict = Machine(stores=parse_stores(["here=/mine"]))
    with pytest.raises(ServiceError, match="does not map"):
        strict.store_of("any", "file:///theirs")


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (["*=/x"], {}),
        (["=x"], {}),
        (["a=/x", "a=/y"], {}),
        (["a=http://169.254.169.254/"], {}),
        (["a=relative"], {}),
        (["a=/x"], {"b": {}}),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused(
    texts: list[str], options: dict[str, dict[str, object]]
) -> None:
    with pytest.raises(ConfigError):
        parse_stores(texts, options)


def test_only_names_that_say_where_things_are_stay_in_the_environment() -> None:
    environment = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        "CKPTGUARD_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_REGION": "r",
        "HF_TOKEN": "h",
        "PATHOLOGICAL": "x",
        "MY_PASSWORD": "p",
    }
    options = s3_options(environment)
    forget_secrets(environment)
    assert environment == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"}
    assert options == {"key": "k", "secret": "s", "client_kwargs": {"region_name": "r"}}


def test_a_process_alone_is_rank_0_of_1() -> None:
    assert Rank.of({}) == Rank()
    assert Rank().device_of("cuda") == "cuda"


def test_a_rank_has_a_device_of_its_own() -> None:
    environment = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "node-0",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    rank = Rank.of(environment)
    assert (rank.number, rank.world_size, rank.device_of("cuda"), rank.device_of("cpu")) == (
        3,
        4,
        "cuda:1",
        "cpu",
    )
    del environment["MASTER_PORT"]
    with pytest.raises(ConfigError):
        Rank.of(environment)


@pytest.mark.parametrize("value", [{}, {"id": 1, "checkpoint": None}, {"id": "x", "checkpoint": {}}])
def test_what_is_no_lease_is_an_error_of_the_service(value: dict[str, object]) -> None:
    with pytest.raises(ServiceError):
        lease_from_json(value)

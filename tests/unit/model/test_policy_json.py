"""A policy crosses from service to worker: every field of it."""

import json
from dataclasses import fields
from typing import Any

import pytest

from ckptguard.errors import FormatError
from ckptguard.model.policy import Depth, Limits, NumericsMode, Policy, Reader, StoreTimes
from ckptguard.model.policy_json import policy_from_json, policy_to_json

UNUSUAL = Policy(
    depth=Depth.CONTENT,
    numerics=NumericsMode.ENFORCE,
    is_strict_objects=True,
    allowed_globals=frozenset({"a.B", "c.D"}),
    reader=Reader(torch=(2, 13)),
    settle_s=1.5,
    mtime_tolerance_s=0.5,
    times=StoreTimes.COPIED,
    is_mtime_ignored=True,
    required_fqns=("layers.*",),
    window_bytes=1 << 20,
    jobs=3,
    device="cuda:1",
    is_direct=True,
    is_stock_load=True,
    deadline_s=60.0,
    limits=Limits(max_items=7),
)


@pytest.mark.parametrize("policy", [Policy(), UNUSUAL])
def test_a_policy_comes_back_as_it_went(policy: Policy) -> None:
    assert policy_from_json(json.loads(json.dumps(policy_to_json(policy)))) == policy


def test_the_unusual_policy_differs_in_every_field() -> None:
    default = Policy()
    assert [f.name for f in fields(Policy) if getattr(UNUSUAL, f.name) == getattr(default, f.name)] == []


def test_what_is_left_out_has_its_default() -> None:
    assert policy_from_json({"settle_s": 0}) == Policy(settle_s=0)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"colour": 1}, "/colour: unknown field"),
        ({"limits": {"max_moons": 1}}, "/limits/max_moons: unknown field"),
        ({"depth": "abyss"}, "/depth: expected one of"),
        ({"settle_s": -1}, "/settle_s: expected a number of seconds"),
        ({"is_direct": 1}, "/is_direct: expected true or false"),
        ({"jobs": 0}, "/jobs: expected 1 or more"),
        ({"window_bytes": 0}, "/window_bytes: expected 1 or more"),
        ({"reader": {"torch": [2], "python": None}}, "/reader/torch: expected major and minor"),
        ({"allowed_globals": ["a"] * 10_001}, "/allowed_globals: 10001 entries, limit 10000"),
    ],
)
def test_another_form_is_refused_with_its_place(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        policy_from_json(value)


def test_every_problem_is_told() -> None:
    with pytest.raises(FormatError) as refused:
        policy_from_json({"colour": 1, "depth": 2, "device": 3})
    assert len(refused.value.problems) == 3

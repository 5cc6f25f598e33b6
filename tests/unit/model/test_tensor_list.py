"""A list of tensors crosses from worker to service: all of it, and nothing that has another form."""

import json
import math
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptguard.model import tensor_list
from ckptguard.model.report import TensorNumerics
from ckptguard.model.tensor_list import TensorEntry, count_lawful, lines_of, pack_tensors, parse_line, to_line

_NUMERICS = st.builds(
    TensorNumerics, st.floats(allow_nan=False), st.floats(allow_nan=False), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
_ENTRIES = st.builds(
    TensorEntry,
    fqn=st.text(max_size=40),
    part=st.text(max_size=5),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    shape=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    num_slices=st.integers(0, 2**31),
    length_bytes=st.integers(0, 2**50),
    num_files=st.integers(0, 2**20),
    files=st.lists(st.text(max_size=20), max_size=tensor_list.MAX_FILES_NAMED).map(tuple),
    numerics=st.none() | _NUMERICS,
)


def entry(fqn: str = "w", numerics: TensorNumerics | None = None) -> TensorEntry:
    return TensorEntry(fqn, "", "float32", (2, 3), 1, 24, 1, ("__0_0.distcp",), numerics)


@settings(max_examples=50, deadline=None)
@given(st.lists(_ENTRIES, max_size=20))
def test_what_is_packed_comes_out_as_it_was(entries: list[TensorEntry]) -> None:
    entries.sort(key=lambda one: one.key)
    packed = pack_tensors(entries)
    assert [parse_line(line) for line in lines_of(packed)] == entries
    assert count_lawful(packed) == len(entries)


@pytest.mark.parametrize("extreme", [math.nan, math.inf, -math.inf])
def test_extremes_that_json_does_not_know_cross_too(extreme: float) -> None:
    measured = TensorNumerics(extreme, extreme, False, False, False)  # noqa: FBT003 - as its fields come
    line = to_line(entry(numerics=measured))
    json.loads(line, parse_constant=pytest.fail)
    found = parse_line(line).numerics
    assert found is not None
    assert str(found.minimum) == str(extreme)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[]",
        b'["w","","float32",[2],1,24,1,["f"]]',
        b'["w","","float32",[-1],1,24,1,["f"],null]',
        b'["w","","float32",[2.5],1,24,1,["f"],null]',
        b'["w","","float32",[true],1,24,1,["f"],null]',
        b'["w","","float32",[2],1,24,1,"f",null]',
        b'["w","","float32",[2],1,24,1,[7],null]',
        b'["w",null,"float32",[2],1,24,1,["f"],null]',
        b'["w","","float32",[2],1,24,1,["f"],[0,1,true,false]]',
        b'["w","","float32",[2],1,24,1,["f"],["0","1",true,false,false]]',
        b'["w","","float32",[2],1,24,1,["f"],[0,1,1,0,0]]',
        b"[" * 60_000,
        b"\xff",
    ],
)
def test_a_line_of_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_line(line)


@pytest.mark.parametrize(
    "packed",
    [
        b"not zlib",
        zlib.compress(b"no end of line"),
        zlib.compress(to_line(entry()))[:-3],
        zlib.compress(to_line(entry())) + b"more",
        zlib.compress(to_line(entry("z")) + to_line(entry("a"))),
        zlib.compress(b"x" * (tensor_list.MAX_LINE_BYTES * 3) + b"\n"),
    ],
    ids=["bytes", "no_end", "cut", "followed", "unsorted", "long_line"],
)
def test_a_list_of_another_form_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        count_lawful(packed)


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_list, "MAX_TEXT_BYTES", 1 << 20)
    bomb = zlib.compress(to_line(entry()) * 100_000)
    assert len(bomb) < 1 << 16
    with pytest.raises(ValueError, match="bytes of text"):
        count_lawful(bomb)


def test_what_is_beyond_the_limits_is_left_out_and_the_rest_is_lawful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensor_list, "MAX_TENSORS", 3)
    long = entry("b" * tensor_list.MAX_LINE_BYTES)
    packed = pack_tensors([entry("a"), long, entry("c"), entry("d"), entry("e")])
    assert [parse_line(line).fqn for line in lines_of(packed)] == ["a", "c", "d"]
    assert count_lawful(packed) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (-1,)},
        {"shape": (1,) * 65},
        {"shape": (2**63,)},
        {"length_bytes": -5},
        {"num_slices": 2**70},
    ],
)
def test_no_hostile_tensor_costs_a_report_its_verdict(changes: dict[str, Any]) -> None:
    packed = pack_tensors([entry("a"), entry("b")._replace(**changes), entry("c")])
    assert count_lawful(packed) == 2

"""How two checkpoints differ."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptguard.model.report import TensorNumerics
from ckptguard.model.tensor_list import TensorEntry, to_line
from ckptguard_api.domain import checkpoint_diff
from ckptguard_api.domain.checkpoint_diff import Difference, TensorChange, diff_files, diff_tensors


def entry(fqn: str, **changes: Any) -> TensorEntry:  # noqa: ANN401 - fields of an entry
    return TensorEntry(fqn, "", "float32", (4,), 1, 16, 1, ("f",), measured())._replace(**changes)


def measured(low: float = -1.0, high: float = 1.0, *, is_finite: bool = True) -> TensorNumerics:
    return TensorNumerics(low, high, is_finite, False, False)  # noqa: FBT003 - as its fields come


def lines(entries: Sequence[TensorEntry]) -> Iterator[bytes]:
    return (to_line(one).removesuffix(b"\n") for one in entries)


def differences(before: TensorEntry, after: TensorEntry) -> tuple[Difference, ...]:
    page = diff_tensors(lines([before]), lines([after]), limit=10)
    return page.changes[0].differences if page.changes else ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ()),
        ({"numerics": measured(-1.1, 1.3)}, ()),
        ({"files": ("g",)}, ()),
        ({"numerics": None}, ()),
        ({"dtype": "bfloat16"}, (Difference.DTYPE,)),
        ({"shape": (8,)}, (Difference.SHAPE,)),
        ({"num_slices": 2}, (Difference.STORED,)),
        ({"dtype": "bfloat16", "length_bytes": 8}, (Difference.DTYPE, Difference.STORED)),
        ({"numerics": measured(-1.0, 11.0)}, (Difference.VALUES,)),
        ({"numerics": measured(-0.01, 0.01)}, (Difference.VALUES,)),
        ({"numerics": measured(float("nan"), float("nan"), is_finite=False)}, (Difference.VALUES,)),
    ],
)
def test_a_tensor_that_differs_is_told_how(changes: dict[str, Any], expected: tuple[Difference, ...]) -> None:
    assert differences(entry("w"), entry("w", **changes)) == expected


_NAMES = st.sets(st.text(max_size=6), max_size=25)


@settings(max_examples=60, deadline=None)
@given(_NAMES, _NAMES, st.integers(1, 7))
def test_pages_together_tell_every_tensor_that_came_or_went(
    old_names: set[str], new_names: set[str], limit: int
) -> None:
    old, new = ([entry(name) for name in sorted(names)] for names in (old_names, new_names))
    told: list[TensorChange] = []
    at: tuple[int, int] | None = (0, 0)
    while at is not None:
        page = diff_tensors(islice(lines(old), at[0], None), islice(lines(new), at[1], None), limit=limit)
        told += page.changes
        assert page.next is None or sum(page.next) > 0, "a page that goes nowhere"
        at = None if page.next is None else (at[0] + page.next[0], at[1] + page.next[1])
    assert [change.entry.fqn for change in told] == sorted(old_names ^ new_names)
    for change in told:
        is_new = change.entry.fqn in new_names
        assert change.differences == (Difference.ADDED if is_new else Difference.REMOVED,)


def test_a_page_looks_at_a_bounded_number_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_diff, "MAX_LOOKED_AT", 100)
    same = [entry(f"{number:05}") for number in range(1000)]
    page = diff_tensors(lines(same), lines(same), limit=10)
    assert (page.changes, page.next, page.counts) == ((), (50, 50), {Difference.SAME: 50})


def test_files_that_came_went_or_have_another_length_are_listed_others_counted() -> None:
    before = [file("a"), file("b"), file("c", checksum="1"), file("d", checksum=None)]
    after = [file("b", length=9), file("c", checksum="2"), file("d", checksum=None), file("e")]
    page = diff_files(iter(before), iter(after), limit=10)
    assert [(change.path, change.difference) for change in page.changes] == [
        ("a", Difference.REMOVED),
        ("b", Difference.LENGTH),
        ("e", Difference.ADDED),
    ]
    assert page.counts[Difference.CONTENT] == 2, "what was not read is not called the same"


def file(path: str, *, length: int = 7, checksum: str | None = "0") -> dict[str, Any]:
    return {"path": path, "length_bytes": length, "checksum": checksum}

"""Extremes from bit patterns are those that torch finds in the values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptguard.canary.extremes import LAYOUTS, NumericsMeter, layout_of, ranks_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from ckptguard.canary.window import ranks_of_tensor  # noqa: E402 - needs torch

DTYPES = sorted(LAYOUTS)


def patterns(dtype: str) -> st.SearchStrategy[bytes]:
    size = getattr(torch, dtype).itemsize
    return st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=40).map(b"".join)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_any_bits_give_the_extremes_that_torch_gives(dtype: str, data: st.DataObject) -> None:
    content = data.draw(patterns(dtype))
    meter = NumericsMeter()
    meter.measure("t", dtype, memoryview(content))
    found = meter.results()["t"]
    typed = torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype))
    assert ranks_of_tensor(typed, LAYOUTS[dtype]) == ranks_of(memoryview(content), LAYOUTS[dtype])
    values = torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).to(torch.float64)
    if values.isnan().any():
        assert math.isnan(found.minimum)
        assert math.isnan(found.maximum)
    else:
        assert (found.minimum, found.maximum) == (values.min().item(), values.max().item())
    assert found.is_finite == bool(values.isfinite().all())
    assert found.is_zero == bool((values == 0).all())
    tiny = torch.finfo(getattr(torch, dtype)).tiny
    assert found.is_denormal == bool((values.abs() < tiny).all() and not (values == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_rank_decodes_to_the_number_of_its_pattern(dtype: str) -> None:
    layout, size = LAYOUTS[dtype], getattr(torch, dtype).itemsize
    step = max(1, layout.infinity // 5000)
    for magnitude in [*range(0, layout.infinity, step), layout.infinity - 1, layout.infinity]:
        content = bytearray(magnitude.to_bytes(size, "little"))
        expected = torch.frombuffer(content, dtype=getattr(torch, dtype)).to(torch.float64).item()
        for sign in (1, -1):
            value = layout.value_of(sign * magnitude)
            assert value == sign * expected or (math.isnan(value) and math.isnan(expected)), magnitude


@given(st.lists(st.floats(width=32), min_size=1, max_size=30), st.integers(1, 29))
def test_pieces_add_up_to_the_whole(values: list[float], cut: int) -> None:
    content = torch.tensor(values, dtype=torch.float32).numpy().tobytes()
    whole, pieces = NumericsMeter(), NumericsMeter()
    whole.measure("t", "float32", memoryview(content))
    for part in (content[: 4 * cut], content[4 * cut :]):
        pieces.measure("t", "float32", memoryview(part))
    assert repr(whole.results()) == repr(pieces.results())


def test_integers_are_not_measured_and_complex_numbers_are_by_their_parts() -> None:
    assert [layout_of(name) for name in ("int64", "bool", "float8_e4m3fnuz", "uint16")] == [None] * 4
    meter = NumericsMeter()
    content = torch.tensor([1 + 2j, -3 + 0j], dtype=torch.complex64).numpy().tobytes()
    meter.measure("z", "complex64", memoryview(content))
    assert (meter.results()["z"].minimum, meter.results()["z"].maximum) == (-3.0, 2.0)

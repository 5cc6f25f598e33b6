"""Text for a terminal is harmless, and its numbers carry units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptguard.cli.plain_text import (
    bytes_text,
    cell_width,
    count_text,
    printable,
    rate_text,
    seconds_text,
    wrap_cells,
)


@given(st.text())
def test_nothing_that_a_terminal_obeys_survives(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= 400


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\r", r"a\x0ab\x0d"),
        ("\u202eevil", r"\u202eevil"),
        ("\udc80", r"\udc80"),
        ("[red]markup[/red]", "[red]markup[/red]"),
        ("ünï ☃", "ünï ☃"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_control_characters_are_spelled_out(hostile: str, shown: str) -> None:
    assert printable(hostile) == shown


def test_a_long_name_loses_its_middle_not_its_end() -> None:
    shown = printable("a" * 1000 + ".weight", max_chars=40)
    assert len(shown) == 40
    assert shown.endswith(".weight")


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"))), st.integers(2, 40))
def test_wrapping_loses_no_character_and_keeps_the_width(text: str, width: int) -> None:
    lines = list(wrap_cells(text, width))
    assert "".join(lines) == text
    assert all(cell_width(line) <= width for line in lines)


def test_wrapping_breaks_at_spaces() -> None:
    assert list(wrap_cells("one two three", 8)) == ["one two", "three"]
    assert list(wrap_cells("one two three", None)) == ["one two three"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (201_300_000, "201.3 MB"), (5e12, "5.0 TB")],
)
def test_lengths_are_in_si_units(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_a_rate_needs_a_time() -> None:
    assert rate_text(2_000_000_000, 0.5) == "4.0 GB/s"
    assert rate_text(10, 0) == ""
    assert rate_text(0, 1) == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.123, "0.12 s"), (187, "3 min 07 s"), (7500, "2 h 05 min")])
def test_durations_read_naturally(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_one_of_a_kind_is_singular() -> None:
    assert count_text(1, "files") == "1 file"
    assert count_text(12345, "files") == "12,345 files"
    assert count_text(12345, "bytes") == "12.3 kB"

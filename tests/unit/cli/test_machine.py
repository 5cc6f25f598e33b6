"""What `doctor` says about a machine."""

from pathlib import Path

import pytest

from ckptguard.cli.doctor import render_rows
from ckptguard.cli.lines import line_text
from ckptguard.cli.machine import Health, Row, look_at_machine, memory_limits


def test_a_cgroup_limit_counts_and_none_does_not(tmp_path: Path) -> None:
    (tmp_path / "v2").write_text("8589934592\n", encoding="ascii")
    (tmp_path / "v2_none").write_text("max\n", encoding="ascii")
    (tmp_path / "v1_none").write_text("9223372036854771712\n", encoding="ascii")
    files = [tmp_path / name for name in ("v2", "v2_none", "v1_none", "absent")]
    assert [limit for limit in memory_limits(files) if limit[0] == "cgroup"] == [("cgroup", 8 << 30)]


def test_every_row_that_lacks_something_says_what_that_means(tmp_path: Path) -> None:
    for row in look_at_machine(tmp_path):
        assert row.value
        assert (row.health is Health.OK) == (row.consequence == ""), row


def test_a_corpus_that_is_not_there_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTGUARD_CORPUS", str(tmp_path / "nowhere"))
    assert list(look_at_machine(tmp_path))[-1].health is Health.BAD


def test_rows_are_words_not_colours_alone() -> None:
    rows = [Row("torch", Health.ABSENT, "not installed", "no check `load`")]
    assert [line_text(line) for line in render_rows(rows)] == [
        "torch            absent  not installed",
        "                         no check `load`",
    ]

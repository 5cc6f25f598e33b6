"""What a user types becomes a policy, or a refusal that says what would be right."""

from pathlib import Path

import pytest

from ckptguard.cli.options import (
    CheckOptions,
    LoadBy,
    parse_device,
    parse_duration,
    parse_length,
    parse_profile,
    parse_reader,
    parse_step,
    policy_of,
)
from ckptguard.errors import ConfigError
from ckptguard.model.policy import Depth, Policy, Reader


def test_no_option_is_the_default_policy() -> None:
    assert policy_of(CheckOptions()) == Policy()


def test_options_reach_the_policy() -> None:
    policy = policy_of(
        CheckOptions(
            settle="0", window="256MiB", deadline="10m", reader="torch=2.14", allow_global=("a.B",), jobs=3
        )
    )
    assert policy.settle_s == 0.0
    assert policy.window_bytes == 256 << 20
    assert policy.deadline_s == 600.0
    assert policy.reader == Reader(torch=(2, 14))
    assert policy.allowed_globals == {"a.B"}
    assert policy.jobs == 3


def test_a_stock_load_below_depth_load_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs --depth load"):
        policy_of(CheckOptions(load=LoadBy.STOCK, depth=Depth.CONTENT))


@pytest.mark.parametrize(
    ("text", "length"),
    [("1048576", 1 << 20), ("1MiB", 1 << 20), ("1.5G", 3 << 29), ("64k", 64 << 10), ("8 MB", 8 << 20)],
)
def test_lengths_take_binary_units(text: str, length: int) -> None:
    assert parse_length("--window", text) == length


@pytest.mark.parametrize("text", ["", "0", "-1", "1 lot", "0.0001", "1e9"])
def test_a_length_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--window"):
        parse_length("--window", text)


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("2.5s", 2.5), ("10m", 600), ("2h", 7200)])
def test_durations_take_units(text: str, seconds: float) -> None:
    assert parse_duration("--settle", text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "soon", "1 d", "nan", "inf"])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--settle"):
        parse_duration("--settle", text)


def test_a_reader_names_torch_and_python() -> None:
    assert parse_reader("torch=2.13,python=3.11") == Reader(torch=(2, 13), python=(3, 11))
    assert parse_reader("python=3.13") == Reader(python=(3, 13))
    assert parse_reader("torch=2.13.1") == Reader(torch=(2, 13))


@pytest.mark.parametrize("text", ["", "torch", "torch=2", "jax=0.4", "torch=2.13,torch=2.14", "torch=two.1"])
def test_another_reader_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--reader"):
        parse_reader(text)


def test_devices_are_cpu_and_cuda() -> None:
    assert [parse_device(text) for text in ("cpu", "cuda", "cuda:1")] == ["cpu", "cuda", "cuda:1"]
    for text in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(ConfigError, match="--device"):
            parse_device(text)


def test_a_profile_is_patterns_or_a_file_of_them(tmp_path: Path) -> None:
    file = tmp_path / "resume.profile"
    file.write_text("# what a resume needs\nmodel.*\n\noptim.*  # both moments\n", encoding="utf-8")
    assert parse_profile("model.*, optim.*") == ("model.*", "optim.*")
    assert parse_profile(str(file)) == ("model.*", "optim.*")


def test_an_empty_profile_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.profile"
    file.write_bytes(b"# nothing\n")
    binary = tmp_path / "binary.profile"
    binary.write_bytes(b"\xff\xfe")
    for text in ("", " , ", str(file), str(binary)):
        with pytest.raises(ConfigError, match="--profile"):
            parse_profile(text)


def test_a_step_is_a_number() -> None:
    assert parse_step("0") == 0
    assert parse_step("1200") == 1200
    for text in ("", "-1", "newest", "1.0", "٣"):
        with pytest.raises(ConfigError, match="--step"):
            parse_step(text)

"""`ckptguard check` as processes: answers, exit codes, JSON, colour, steps."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptguard.testing.damage import Aim, DamageKind, damage_copy
from ckptguard.testing.edits import copy_checkpoint

Ckptguard = Callable[..., "subprocess.CompletedProcess[str]"]

JSON_KEYS = {
    "schema", "verdict", "basis", "assurance", "provenance", "device", "format", "checks", "findings",
    "shards", "items", "tensors", "bytes_total", "bytes_read", "seconds", "seconds_reading",
}  # fmt: skip
FINDING_KEYS = {
    "code", "severity", "file", "fqn", "offset", "length_bytes", "expected", "observed", "message",
}  # fmt: skip


@pytest.fixture
def damaged(run_folder: Path) -> Path:
    """Return a copy of the checkpoint with one bit flipped in a tensor."""
    folder = run_folder.parent / "damaged"
    damage_copy(run_folder / "step-2", folder, kind=DamageKind.BIT_FLIP, seed=1)
    return folder


@pytest.mark.torch
def test_a_healthy_checkpoint_is_valid_and_loaded(ckptguard: Ckptguard, run_folder: Path) -> None:
    done = ckptguard("check", run_folder / "step-2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("VALID (loaded)")
    assert "\x1b" not in done.stdout


def test_content_alone_needs_no_torch(run_folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from ckptguard.cli.main import run\n"
        f"sys.exit(run(['check', {str(run_folder / 'step-2')!r}, '--depth', 'content']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("VALID (content)")


def test_a_flipped_bit_is_invalid_and_its_place_is_named(ckptguard: Ckptguard, damaged: Path) -> None:
    done = ckptguard("check", damaged, "--depth", "content")
    assert done.returncode == 30
    assert done.stdout.startswith("INVALID (damage)")
    for label in ("file      __", "tensor    ", "slice     offsets", "bytes     from byte"):
        assert f"    {label}" in done.stdout
    assert "What to do next" in done.stdout


def test_json_is_one_object_with_the_documented_keys(ckptguard: Ckptguard, damaged: Path) -> None:
    done = ckptguard("check", damaged, "--depth", "content", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report.keys() >= JSON_KEYS
    assert report["verdict"] == "INVALID"
    assert report["findings"][0].keys() >= FINDING_KEYS
    assert done.returncode == 30


def test_a_format_that_cannot_prove_content_is_10(
    ckptguard: Ckptguard, tmp_path: Path, own_corpus: Path
) -> None:
    copy_checkpoint(own_corpus / "hf_hub_sharded_safetensors", tmp_path / "model")
    done = ckptguard("check", "model", "--depth", "content")
    assert done.returncode == 10, done.stdout + done.stderr
    assert done.stdout.startswith("VALID (structure)")


def test_a_layout_that_nobody_knows_is_unknown_for_good(ckptguard: Ckptguard, tmp_path: Path) -> None:
    (tmp_path / "array").mkdir()
    (tmp_path / "array" / ".zarray").write_text("{}")
    (tmp_path / "array" / "0.0").write_bytes(b"elements")
    done = ckptguard("check", "array", "--depth", "structure")
    assert done.returncode == 30
    assert done.stdout.startswith("UNKNOWN")


@pytest.mark.parametrize("is_made", [False, True], ids=["absent", "empty"])
def test_nothing_there_is_40(ckptguard: Ckptguard, tmp_path: Path, *, is_made: bool) -> None:
    if is_made:
        (tmp_path / "nowhere").mkdir()
    done = ckptguard("check", "nowhere", "--json")
    assert done.returncode == 40, done.stdout + done.stderr
    assert isinstance(json.loads(done.stdout), dict)


def test_an_unknown_protocol_is_a_usage_error(ckptguard: Ckptguard) -> None:
    done = ckptguard("check", "nosuch://bucket/run")
    assert done.returncode == 2
    assert done.stdout == ""


def test_all_steps_are_told_oldest_first_and_the_newest_decides(
    ckptguard: Ckptguard, run_folder: Path
) -> None:
    good, bad, newest = (run_folder / f"step-{step}" for step in (2, 4, 10))
    damage_copy(good, bad, kind=DamageKind.TRUNCATE, aim=Aim(file="__1_0.distcp"))
    copy_checkpoint(good, newest)
    arguments = ("check", run_folder, "--step", "all", "--depth", "content", "--settle", "0")
    done = ckptguard(*arguments)
    told = [line.split()[:3] for line in done.stdout.splitlines()]
    assert told == [
        ["step", "2", "VALID"],
        ["step", "4", "INVALID"],
        ["step", "10", "VALID"],
    ]
    assert done.returncode == 0
    answer = json.loads(ckptguard(*arguments, "--json").stdout)
    assert [report["verdict"] for report in answer["reports"]] == ["VALID", "INVALID", "VALID"]
    assert answer["step"] == 10


def test_one_step_of_a_folder_of_steps_can_be_named(ckptguard: Ckptguard, run_folder: Path) -> None:
    copy_checkpoint(run_folder / "step-2", run_folder / "step-4")
    report = json.loads(ckptguard("check", run_folder, "--step", 2, "--depth", "structure", "--json").stdout)
    assert report["step"] == 2
    assert [step["step"] for step in report["steps"]] == [2, 4]


def test_a_checkpoint_is_only_read(ckptguard: Ckptguard, damaged: Path) -> None:
    before = _state(damaged)
    ckptguard("check", damaged, "--depth", "content")
    assert _state(damaged) == before


def _state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes())
        for path in folder.iterdir()
    }


def test_a_reader_that_goes_away_changes_no_exit_code(environment: dict[str, str], damaged: Path) -> None:
    command = f"{sys.executable} -m ckptguard check {damaged} --depth content | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],  # noqa: S607 - any bash
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (30, "")


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colour_unless_it_says_no(
    environment: dict[str, str], damaged: Path, no_color: str, *, is_coloured: bool
) -> None:
    shown = _on_a_terminal(
        [sys.executable, "-m", "ckptguard", "check", str(damaged), "--depth", "content"],
        environment | {"TERM": "xterm-256color", "NO_COLOR": no_color},
    )
    assert "INVALID (damage)" in shown
    assert ("\x1b[1;31mINVALID (damage)" in shown) == is_coloured


def _on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """Run a command whose standard output is a terminal; return what it showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment):
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # Linux: EIO when the last writer is gone
            pass
    os.close(ours)
    return shown.decode()


def test_hostile_names_reach_a_terminal_as_text(ckptguard: Ckptguard, run_folder: Path) -> None:
    name = "\x1b[2J\x1b]0;owned\x07[red]"
    copy_checkpoint(run_folder / "step-2", run_folder / name)
    (run_folder / name / "__0_0.distcp").unlink()
    done = ckptguard("check", run_folder / name, "--depth", "structure", "--settle", "0")
    assert done.returncode == 30
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert r"\x1b[2J\x1b]0;owned\x07[red]" in done.stdout

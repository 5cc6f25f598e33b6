"""What the examples hand to a trainer is what the trainer's own code takes for that checkpoint.

`CKPTGUARD_TRAINERS` names an interpreter that has the trainers; without it, this one, where it has them.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.launchers.examples_of_launchers import EXAMPLES
from tests.launchers.launch_site import LaunchSite, own_environment

STEP = 1200
PARSERS = Path(__file__).with_name("trainer_parsers.py")


def ask(trainer: str, *arguments: str, folder: Path) -> Any:  # noqa: ANN401 - JSON
    """Return what a trainer makes of its arguments."""
    python = os.environ.get("CKPTGUARD_TRAINERS", sys.executable)
    if python == sys.executable and find_spec(trainer) is None:
        pytest.skip(f"{trainer} is not installed; CKPTGUARD_TRAINERS=PYTHON names an interpreter that has it")
    done = subprocess.run(
        [python, PARSERS, trainer, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=own_environment() | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        timeout=120,
    )
    assert "\nANSWER " in done.stdout, done.stdout + done.stderr
    return json.loads(done.stdout.rpartition("\nANSWER ")[2])


def started_with(site: LaunchSite, name: str, run: str) -> tuple[Path, list[str]]:
    """Launch an example; return the checkpoint's folder and the arguments that training was started with."""
    example = next(example for example in EXAMPLES if example.name == name)
    folder = site.save(run, STEP, name=example.folder_name(STEP))
    environment = site.environment(run)
    launched = site.launch(example.command(site, (), environment), environment)
    assert launched.code == 0, launched.output
    return folder, list(launched.started[0])


def after(arguments: Sequence[str], word: str) -> list[str]:
    return list(arguments[list(arguments).index(word) + 1 :])


def test_torchtitan_loads_that_step_of_that_folder(site: LaunchSite) -> None:
    (site.folder / "c.toml").write_text("", encoding="utf-8")
    folder, started = started_with(site, "torchtitan", "titan")
    answer = ask("torchtitan", *after(started, "torchtitan.train"), folder=site.folder)
    assert answer == {"enable": True, "path": str(folder)}


def test_transformers_resumes_from_that_folder(site: LaunchSite) -> None:
    folder, started = started_with(site, "huggingface", "hf")
    assert ask("transformers", *after(started, "train.py"), folder=site.folder) == {"path": str(folder)}


def test_lightning_fits_from_that_folder(site: LaunchSite) -> None:
    folder, started = started_with(site, "lightning", "pl")
    assert ask("lightning", *after(started, "train.py"), folder=site.folder) == {"path": str(folder)}


def test_deepspeed_loads_that_tag_whether_told_or_by_its_own_pointer(site: LaunchSite) -> None:
    folder, started = started_with(site, "deepspeed", "ds")
    _, load_dir, _, tag = after(started, "train.py")
    assert ask("deepspeed", load_dir, tag, folder=site.folder) == {"path": str(folder)}
    environment = site.environment("ds")
    done = site.launch(["ckptguard", "resume", "--run", "ds", "--write-tracker", "deepspeed"], environment)
    assert done.code == 0, done.output
    assert ask("deepspeed", load_dir, folder=site.folder) == {"path": str(folder)}


def test_megatron_is_told_a_step_that_its_grammar_takes(site: LaunchSite) -> None:
    """Megatron-LM is no package: flags as its CheckpointConfig declares them (d98e8a6)."""
    folder, started = started_with(site, "megatron", "mlm")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--load")
    parser.add_argument("--ckpt-step", type=int)
    parser.add_argument("--exit-on-missing-checkpoint", action="store_true")
    parser.add_argument("--num-layers", type=int)
    told = parser.parse_args(after(started, "pretrain_gpt.py"))
    assert told.exit_on_missing_checkpoint
    assert Path(told.load, f"iter_{told.ckpt_step:07d}") == folder


def test_megatron_reads_the_tracker_as_a_step(site: LaunchSite) -> None:
    """`read_metadata`: `int(text.strip())`, and that folder (training/checkpointing.py, d98e8a6)."""
    folder, _ = started_with(site, "megatron-tracker", "mlm-tracker")
    text = folder.with_name("latest_checkpointed_iteration.txt").read_text(encoding="utf-8")
    assert folder.with_name(f"iter_{int(text.strip()):07d}") == folder

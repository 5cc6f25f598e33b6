"""The example under a real torchrun: two ranks, a real checkpoint, a real service."""

import re
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from tests.launchers.launch_site import DEPLOY, Launched, LaunchSite

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is")]

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else torch 2.13's own gloo may connect, after a restart, to addresses of the ranks before."""


def launch(site: LaunchSite, run: str, *options: str, max_restarts: int = 0) -> Launched:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    torchrun.append(f"--max-restarts={max_restarts}")
    environment = site.environment(run, CKPTGUARD_ATTEMPT=f"start-{run}", **OWN_STORE)
    return site.launch(
        [*torchrun, str(DEPLOY / "torchrun/train.py"), run, "--wait", "0", *options], environment
    )


def save_linear(folder: Path) -> None:
    save({"model": torch.nn.Linear(64, 64).state_dict()}, checkpoint_id=folder)


def test_two_ranks_go_on_from_the_proven_one_and_tell_so(site: LaunchSite) -> None:
    site.save("linear", 1200, name="step-1200", write=save_linear)
    launched = launch(site, "linear")
    assert launched.code == 0, launched.output
    assert len(re.findall(r"from step 1200(?!,)", launched.output)) == 2  # maybe in one line
    told = [(attempt, outcome) for attempt, outcome, _ in site.restarts("linear")]
    assert told == [("start-linear", "resumed"), ("start-linear", "progressed")]


def test_no_rank_starts_from_scratch_because_of_a_typo(site: LaunchSite) -> None:
    launched = launch(site, "linaer", "--allow-fresh")
    assert launched.code != 0
    assert "from step" not in launched.output
    assert launched.output.count("run linaer has nothing to resume from (unknown_run)") >= 2


@pytest.mark.slow
def test_ranks_that_torchrun_restarts_ask_again_and_each_start_is_told(site: LaunchSite) -> None:
    """The service was told that it is VALID; here its shards are none."""
    site.save("broken", 1200, name="step-1200")
    launched = launch(site, "broken", max_restarts=1)
    assert launched.code != 0
    told = site.restarts("broken")
    assert [(attempt, outcome) for attempt, outcome, _ in told] == [
        ("start-broken", "resumed"),
        ("start-broken", "failed_loading"),
        ("start-broken.1", "resumed"),
        ("start-broken.1", "failed_loading"),
    ]
    assert "CheckpointException" in (told[1][2] or "")

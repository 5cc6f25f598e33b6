"""Every launcher's example in every state of a run: training starts once, or not at all (design §9)."""

import subprocess
from pathlib import Path

import pytest

from tests.launchers.examples_of_launchers import EXAMPLES, FLAGS_OF_A_RESUME, Example
from tests.launchers.launch_site import DEPLOY, STALE, Launched, LaunchSite, closed_port

OLDER, NEWER = 1200, 1300
ALWAYS = {"torchrun", "slurm", "megatron-tracker", "kubeflow"}
"""Tried by `make test`; the others, which ask in the same way, by `make prove`."""


@pytest.fixture(
    params=[
        pytest.param(one, marks=[] if one.name in ALWAYS else [pytest.mark.slow], id=one.name)
        for one in EXAMPLES
    ]
)
def example(request: pytest.FixtureRequest) -> Example:
    """Return each example in turn."""
    chosen: Example = request.param
    return chosen


def launch(site: LaunchSite, example: Example, run: str, *options: str, **more: str) -> Launched:
    """Run an example for a run, in an environment where an earlier start left its variables."""
    environment = site.environment(run, SLURM_JOB_ID=f"job-{run}", **STALE, **more)
    command = example.command(site, options, environment)
    return site.launch(command, environment)


def run_of(example: Example, state: str) -> str:
    """Return the name of a run; each test has its own."""
    return f"{example.name}-{state}"


def assert_not_started(launched: Launched, code: int) -> None:
    assert (launched.code, launched.started) == (code, ()), launched.output


def test_the_last_proven_one_is_what_training_starts_from(site: LaunchSite, example: Example) -> None:
    run = run_of(example, "good")
    folder = site.save(run, OLDER, name=example.folder_name(OLDER))
    site.save(run, NEWER, name=example.folder_name(NEWER), is_valid=False)
    launched = launch(site, example, run)
    assert (launched.code, len(launched.started)) == (0, 1), launched.output
    program, *arguments = launched.started[0]
    flags = list(example.flags(folder, OLDER))
    assert program == example.program
    assert any(arguments[at : at + len(flags)] == flags for at in range(len(arguments))), arguments
    assert "/stale" not in " ".join(arguments)
    if example.name != "hyperpod":  # its ranks report
        assert [told[1] for told in site.restarts(run)] == ["resumed"]


def test_an_empty_run_is_40_and_starts_from_nothing_only_if_allowed(
    site: LaunchSite, example: Example
) -> None:
    run = run_of(example, "empty")
    site.add_empty_run(run)
    assert_not_started(launch(site, example, run), 40)
    launched = launch(site, example, run, "--allow-fresh")
    assert (launched.code, len(launched.started)) == (0, 1), launched.output
    assert not FLAGS_OF_A_RESUME & set(launched.started[0])
    assert "/stale" not in " ".join(launched.started[0])


def test_a_run_whose_checkpoints_are_all_damaged_is_30(site: LaunchSite, example: Example) -> None:
    run = run_of(example, "damaged")
    site.save(run, OLDER, name=example.folder_name(OLDER), is_valid=False)
    assert_not_started(launch(site, example, run, "--allow-fresh"), 30)


def test_a_service_that_is_down_is_20(site: LaunchSite, example: Example) -> None:
    nobody = f"http://127.0.0.1:{closed_port()}"
    run = run_of(example, "down")
    launched = launch(site, example, run, "--allow-fresh", "--deadline", "1s", CKPTGUARD_URL=nobody)
    assert_not_started(launched, 20)
    assert launched.requeued == ("requeue job-slurm-down" if example.name == "slurm" else "")


def test_a_typo_in_the_name_of_the_run_is_30(site: LaunchSite, example: Example) -> None:
    assert_not_started(launch(site, example, run_of(example, "goood"), "--allow-fresh"), 30)


def test_slurm_goes_back_into_the_queue_only_so_often(site: LaunchSite) -> None:
    slurm = next(example for example in EXAMPLES if example.name == "slurm")
    nobody = f"http://127.0.0.1:{closed_port()}"
    often = {"SLURM_RESTART_COUNT": "20", "CKPTGUARD_URL": nobody}
    launched = launch(site, slurm, "slurm-often", "--deadline", "1s", **often)
    assert_not_started(launched, 20)
    assert launched.requeued == ""


@pytest.mark.parametrize("name", ["torchrun", "slurm", "skypilot"])
def test_a_training_that_fails_is_told_and_its_exit_code_kept(name: str, site: LaunchSite) -> None:
    example = next(example for example in EXAMPLES if example.name == name)
    run = run_of(example, "fails")
    site.save(run, OLDER, name=example.folder_name(OLDER))
    launched = launch(site, example, run, TRAINING_ENDS_WITH="7", SLURM_RESTART_COUNT="3")
    assert (launched.code, len(launched.started)) == (7, 1), launched.output
    resumed, failed = site.restarts(run)
    assert (resumed[1], failed[1], failed[2]) == ("resumed", "failed_early", "exit code 7")
    assert resumed[0] == failed[0]
    assert name != "slurm" or resumed[0] == f"slurm-job-{run}-3"


@pytest.mark.parametrize("name", ["torchtitan", "huggingface"])
def test_a_folder_that_the_service_does_not_know_is_not_taken_for_a_fresh_start(
    name: str, site: LaunchSite
) -> None:
    """These trainers take what they find: a fresh start would be one from something unproven."""
    example = next(example for example in EXAMPLES if example.name == name)
    run = run_of(example, "unknown")
    site.add_empty_run(run)
    (site.store / run / example.folder_name(OLDER)).mkdir(parents=True)
    assert_not_started(launch(site, example, run, "--allow-fresh"), 30)


def test_a_proven_step_that_torchtitan_would_not_find_starts_nothing(site: LaunchSite) -> None:
    """With its folder missing torchtitan starts from scratch, whatever --checkpoint.load_step says."""
    titan = next(example for example in EXAMPLES if example.name == "torchtitan")
    run = run_of(titan, "elsewhere")
    site.save(run, OLDER, name=f"other/step-{OLDER}")
    assert_not_started(launch(site, titan, run), 30)


@pytest.mark.parametrize(("step", "folder"), [(OLDER, f"step-{OLDER}"), (0, "iter_0000000")])
def test_a_proven_step_that_megatron_would_not_find_starts_nothing(
    step: int, folder: str, site: LaunchSite
) -> None:
    megatron = next(example for example in EXAMPLES if example.name == "megatron")
    run = f"megatron-at-{step}"
    site.save(run, step, name=folder)
    assert_not_started(launch(site, megatron, run), 30)


def test_the_tracker_names_the_proven_one_before_training_starts(site: LaunchSite) -> None:
    example = next(example for example in EXAMPLES if example.name == "megatron-tracker")
    run = run_of(example, "led")
    folder = site.save(run, OLDER, name=example.folder_name(OLDER))
    site.save(run, NEWER, name=example.folder_name(NEWER), is_valid=False)
    tracker = folder.with_name("latest_checkpointed_iteration.txt")
    tracker.write_text(str(NEWER), encoding="utf-8")
    assert launch(site, example, run).code == 0
    assert tracker.read_text(encoding="utf-8") == str(OLDER)


SCRIPTS = sorted([*DEPLOY.rglob("*.sh"), *DEPLOY.rglob("*.sbatch")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(DEPLOY)))
def test_every_script_is_one_that_bash_can_read(script: Path) -> None:
    done = subprocess.run(["bash", "-n", script], check=False, capture_output=True, text=True)  # noqa: S607 - any bash
    assert (done.returncode, done.stderr) == (0, "")

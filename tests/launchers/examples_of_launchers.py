"""Each example of `deploy/` that can be run here, and how: scripts as they are, also those inside of YAML."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests.launchers.launch_site import DEPLOY, LaunchSite

Environment = dict[str, str]


def read_yaml(file: Path) -> Any:  # noqa: ANN401 - YAML
    """Return a document as plain values."""
    return YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example.

    Args:
        name: For a person.
        folder_name: How its trainer names the folder of a step.
        command: Makes the command line from options of `ckptguard resume`, and may add to the environment.
        flags: What the training must be started with, of a checkpoint's folder.
        program: What trains.
    """

    name: str
    folder_name: Callable[[int], str]
    command: Callable[[LaunchSite, Sequence[str], Environment], list[str]]
    flags: Callable[[Path, int], tuple[str, ...]]
    program: str = "torchrun"


def _script(path: str) -> Callable[[LaunchSite, Sequence[str], Environment], list[str]]:
    def command(site: LaunchSite, options: Sequence[str], environment: Environment) -> list[str]:
        run_folder = site.store / environment["RUN"]
        environment |= {"OUTPUT": str(run_folder), "DUMP": str(run_folder), "CONFIG": "c.toml"}
        environment |= {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2"}
        return ["bash", str(DEPLOY / path), *options]

    return command


def _megatron(site: LaunchSite, options: Sequence[str], environment: Environment) -> list[str]:
    del site, environment
    return ["bash", str(DEPLOY / "megatron/train.sh"), *options, "--", "--num-layers", "2"]


def _by_tracker(site: LaunchSite, options: Sequence[str], environment: Environment) -> list[str]:
    del site
    environment["RESUME_OPTIONS"] = " ".join(options)
    return ["bash", str(DEPLOY / "megatron/train_by_tracker.sh"), "train-by-tracker", "--num-layers", "2"]


def _skypilot(site: LaunchSite, options: Sequence[str], environment: Environment) -> list[str]:
    del site
    environment |= {
        "RESUME_OPTIONS": " ".join(["--wait", "0s", *options]),
        "SKYPILOT_TASK_ID": "sky-1",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    }
    return ["bash", "-c", read_yaml(DEPLOY / "skypilot/train.yaml")["run"]]


def pod_of(document: Any) -> Any:  # noqa: ANN401 - YAML
    """Return the pod of a training runtime."""
    (job,) = document["spec"]["template"]["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]["spec"]


def _kubeflow(site: LaunchSite, options: Sequence[str], environment: Environment) -> list[str]:
    """Run the init container's script, and where it ends well, the trainer's."""
    (first,) = pod_of(read_yaml(DEPLOY / "kubeflow/training-runtime.yaml"))["initContainers"]
    trainer = read_yaml(DEPLOY / "kubeflow/trainjob.yaml")["spec"]["trainer"]
    assert first["command"] == trainer["command"] == ["/bin/bash", "-euo", "pipefail", "-c"]
    target = site.folder / "target"
    environment |= {"RESUME_OPTIONS": " ".join(["--wait", "0s", *options]), "TARGET": str(target)}
    environment["CKPTGUARD_ATTEMPT"] = f"pod-{environment['RUN']}"
    then = trainer["args"][0].replace("/ckptguard/target", str(target))
    pod = 'bash -euo pipefail -c "$1" || exit $?; exec env -u RUN bash -euo pipefail -c "$2"'
    return ["bash", "-c", pod, "pod", first["args"][0], then]


def _named(pattern: str) -> Callable[[int], str]:
    return pattern.format


def _flag(flag: str) -> Callable[[Path, int], tuple[str, ...]]:
    return lambda folder, _: (flag, str(folder))


EXAMPLES: Final = (
    Example(
        name="torchrun",
        folder_name=_named("step-{}"),
        command=_script("torchrun/train.sh"),
        flags=_flag("--resume"),
    ),
    Example(
        name="slurm",
        folder_name=_named("step-{}"),
        command=_script("slurm/train.sbatch"),
        flags=_flag("--resume"),
    ),
    Example(
        name="hyperpod",
        folder_name=_named("step-{}"),
        command=_script("hyperpod/train.sbatch"),
        flags=lambda *_: ("train.py",),  # its ranks ask by themselves
    ),
    Example(
        name="torchtitan",
        folder_name=_named("checkpoint/step-{}"),
        command=_script("torchtitan/train.sh"),
        flags=lambda _, step: ("--checkpoint.load_step", str(step)),
    ),
    Example(
        name="megatron",
        folder_name=_named("iter_{:07d}"),
        command=_megatron,
        flags=lambda folder, step: (
            *("--load", str(folder.parent)),
            *("--ckpt-step", str(step), "--exit-on-missing-checkpoint"),
        ),
    ),
    Example(
        name="megatron-tracker",
        folder_name=_named("iter_{:07d}"),
        command=_by_tracker,
        flags=lambda *_: ("--num-layers", "2"),
        program="train-by-tracker",
    ),
    Example(
        name="deepspeed",
        folder_name=_named("global_step{}"),
        command=_script("deepspeed/train.sh"),
        flags=lambda folder, _: ("--load_dir", str(folder.parent), "--tag", folder.name),
        program="deepspeed",
    ),
    Example(
        name="huggingface",
        folder_name=_named("checkpoint-{}"),
        command=_script("huggingface/train.sh"),
        flags=_flag("--resume_from_checkpoint"),
    ),
    Example(
        name="lightning",
        folder_name=_named("step={}.ckpt"),
        command=_script("lightning/train.sh"),
        flags=_flag("--ckpt_path"),
    ),
    Example(name="skypilot", folder_name=_named("step-{}"), command=_skypilot, flags=_flag("--resume")),
    Example(
        name="kubeflow",
        folder_name=_named("step-{}"),
        command=_kubeflow,
        flags=lambda *_: ("train.py",),  # `handed_target()` reads the variables
    ),
)
FLAGS_OF_A_RESUME: Final = frozenset(
    [
        "--resume",
        "--checkpoint.load_step",
        "--load",
        "--ckpt-step",
        "--load_dir",
        "--tag",
        "--resume_from_checkpoint",
        "--ckpt_path",
    ]
)

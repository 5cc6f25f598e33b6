"""`ckptguard check`: the whole protocol on one checkpoint, or on every step of a folder."""

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli.answers import answer_for_all, answer_for_one
from ckptguard.cli.options import ALL_STEPS, CheckOptions, LoadBy, parse_step, policy_of
from ckptguard.cli.progress_display import showing_progress
from ckptguard.errors import ConfigError
from ckptguard.model.policy import Depth, NumericsMode, Policy, StoreTimes
from ckptguard.model.report import Report
from ckptguard.operations.manifest import load_manifest
from ckptguard.operations.validate import validate

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Prove a checkpoint: every byte read once, every tensor loaded.

Nothing is ever changed: checkpoints are only read.

\b
Examples:
  ckptguard check /checkpoints/run-7/step-1200
  ckptguard check /checkpoints/run-7 --step all
  ckptguard check s3://bucket/run-7/step-1200 --depth content --json
  ckptguard check . --manifest ckptguard.manifest.json --numerics enforce
  ckptguard check step-1200 --profile 'model.*,optim.*' --load stock

\b
Exit codes:
   0  VALID as deep as asked       10  VALID, but lower
  20  UNKNOWN, time may change it  30  INVALID, or UNKNOWN for good
  40  nothing there                 2  usage
"""


@app.command(help=_HELP)
def check(  # noqa: PLR0913 - one parameter for each option
    target: arg.Target,
    *,
    depth: arg.DepthOption = Depth.LOAD,
    step: arg.StepOption = None,
    manifest: arg.ManifestOption = None,
    device: arg.DeviceOption = "cpu",
    profile: arg.ProfileOption = None,
    numerics: arg.NumericsOption = NumericsMode.REPORT,
    reader: arg.ReaderOption = None,
    load: arg.LoadOption = LoadBy.OWN,
    direct: arg.DirectOption = False,
    settle: arg.SettleOption = None,
    ignore_mtime: arg.IgnoreMtimeOption = False,
    times: arg.TimesOption = StoreTimes.ORIGINAL,
    strict_objects: arg.StrictObjectsOption = False,
    allow_global: arg.AllowGlobalOption = None,
    jobs: arg.JobsOption = None,
    window: arg.WindowOption = None,
    deadline: arg.DeadlineOption = None,
    root: arg.RootOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `check` and return its exit code."""
    policy = policy_of(
        CheckOptions(
            depth=depth,
            device=device,
            profile=profile,
            numerics=numerics,
            reader=reader,
            load=load,
            is_direct=direct,
            settle=settle,
            is_mtime_ignored=ignore_mtime,
            times=times,
            is_strict_objects=strict_objects,
            allow_global=tuple(allow_global or ()),
            jobs=jobs,
            window=window,
            deadline=deadline,
        )
    )
    if step == ALL_STEPS and manifest is not None:
        msg = "--manifest is of one step; leave it out with --step all: manifests beside the steps are used"
        raise ConfigError(msg)
    held_against = None if manifest is None else load_manifest(manifest)

    def ask(asked: Policy, number: int | None) -> Report:
        with showing_progress() as listener:
            return validate(
                target, policy=asked, root=root, manifest=held_against, step=number, progress=listener
            )

    if step == ALL_STEPS:
        return answer_for_all(ask, policy, is_json=json)
    return answer_for_one(ask, policy, step=None if step is None else parse_step(step), is_json=json)

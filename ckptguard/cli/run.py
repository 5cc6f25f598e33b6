"""`ckptguard run`: make a run, look at it, change its policy."""

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, Span, Style, write_lines
from ckptguard.cli.options import parse_duration, parse_profile
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import service
from ckptguard.cli.service_rows import age_text, exposure_text, facts
from ckptguard.client.answers import Run
from ckptguard.client.decode import encode
from ckptguard.clock import SystemClock
from ckptguard.errors import ConfigError
from ckptguard.model.policy import NumericsMode

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Make a run, look at it, change its policy.

A run also comes to be with its first registration, with the usual policy.

\b
Examples:
  ckptguard run create pretrain-7 --min-assurance loaded --gpus 8000 --usd-per-gpu-hour 3
  ckptguard run show pretrain-7
  ckptguard run set pretrain-7 --unprotected-after 6h
""",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the run.", show_default=False)]
NumericsOption = Annotated[
    NumericsMode | None, typer.Option("--numerics", help="What non-finite values mean; default: report.")
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="PATTERNS|FILE", help="Tensors that must be there.")
]
GpusOption = Annotated[int | None, typer.Option("--gpus", min=0, help="For what a failure costs.")]
PriceOption = Annotated[
    float | None, typer.Option("--usd-per-gpu-hour", min=0, help="For what a failure costs.")
]
UnprotectedOption = Annotated[
    str | None,
    typer.Option("--unprotected-after", metavar="DURATION", help="Tell when the newest VALID is older."),
]
MinStepsOption = Annotated[
    int | None, typer.Option("--min-steps", min=0, help="A restart that fails earlier counts; default: 20.")
]


@app.command()
def create(  # noqa: PLR0913 - one parameter for each option
    name: Name,
    *,
    min_assurance: service_arg.AssuranceOption = None,
    min_provenance: service_arg.ProvenanceOption = None,
    numerics: NumericsOption = None,
    profile: ProfileOption = None,
    gpus: GpusOption = None,
    usd_per_gpu_hour: PriceOption = None,
    unprotected_after: UnprotectedOption = None,
    min_steps: MinStepsOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Make a run; the same again is the same run."""
    with service() as client:
        made = client.create_run(
            name,
            min_assurance=min_assurance,
            min_provenance=min_provenance,
            numerics=numerics,
            required_fqns=None if profile is None else parse_profile(profile),
            gpus=gpus,
            usd_per_gpu_hour=usd_per_gpu_hour,
            unprotected_after_s=_seconds(unprotected_after),
            min_steps=min_steps,
        )
    return _tell(made, is_json=json)


@app.command()
def show(name: Name, *, json: arg.JsonOption = False) -> int:
    """Show a run: its policy, its newest VALID, and what a failure now would cost."""
    with service() as client:
        return _tell(client.run(name), is_json=json)


@app.command("set")
def change(  # noqa: PLR0913 - one parameter for each option
    name: Name,
    *,
    min_assurance: service_arg.AssuranceOption = None,
    min_provenance: service_arg.ProvenanceOption = None,
    numerics: NumericsOption = None,
    profile: ProfileOption = None,
    gpus: GpusOption = None,
    usd_per_gpu_hour: PriceOption = None,
    unprotected_after: UnprotectedOption = None,
    min_steps: MinStepsOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Change the policy of a run; only what is given changes."""
    wanted: dict[str, Any] = {
        "min_assurance": min_assurance,
        "min_provenance": min_provenance,
        "numerics": numerics,
        "required_fqns": None if profile is None else list(parse_profile(profile)),
        "gpus": gpus,
        "usd_per_gpu_hour": usd_per_gpu_hour,
        "unprotected_after_s": _seconds(unprotected_after),
        "min_steps": min_steps,
    }
    if all(value is None for value in wanted.values()):
        msg = "name something to change: `ckptguard run set --help` lists what there is"
        raise ConfigError(msg)
    with service() as client:
        return _tell(client.change_run(name, **wanted), is_json=json)


def _seconds(text: str | None) -> float | None:
    return None if text is None else parse_duration("--unprotected-after", text)


def _tell(run: Run, *, is_json: bool) -> int:
    if is_json:
        write_json({"schema": SCHEMA, "run": encode(run)})
    else:
        write_lines(_render(run), sys.stdout)
    return ExitCode.OK


def _render(run: Run) -> Iterator[Line]:
    now = SystemClock().now()
    newest = run.newest_valid
    counts = ", ".join(f"{count} {name}" for name, count in run.counts.items() if count)
    yield (Span(printable(run.name), Style.STRONG),)
    yield from facts(
        [
            (
                "newest valid",
                f"step {newest.step}, saved {age_text(newest.created_at, now)}" if newest else "none",
            ),
            ("a failure", exposure_text(run.exposure)),
            ("checkpoints", counts or "none"),
            ("branch", run.branch),
            ("policy", _policy_text(run)),
            ("gpus", run.gpus),
            ("price", None if run.usd_per_gpu_hour is None else f"${run.usd_per_gpu_hour:g} per GPU-hour"),
            ("required", ", ".join(run.required_fqns)),
            ("made", age_text(run.created_at, now) if run.created_at else None),
        ]
    )


def _policy_text(run: Run) -> str:
    parts = (
        run.min_assurance and f"at least {run.min_assurance.value}",
        run.min_provenance and f"provenance {run.min_provenance.value}",
        run.numerics and f"numerics {run.numerics}",
        None if run.unprotected_after_s is None else f"unprotected after {run.unprotected_after_s:g} s",
    )
    return ", ".join(part for part in parts if part)

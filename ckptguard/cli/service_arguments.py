"""The arguments of the commands that ask the service, as a user sees them."""

from typing import Annotated

import typer

from ckptguard.model.verdict import Assurance, Provenance

RunOption = Annotated[
    str, typer.Option("--run", metavar="NAME", help="The training run.", show_default=False)
]
RunFilter = Annotated[str | None, typer.Option("--run", metavar="NAME", help="The training run.")]
StepOption = Annotated[
    int, typer.Option("--step", metavar="N", min=0, help="The optimizer step.", show_default=False)
]
StepFilter = Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="The optimizer step.")]
CheckpointId = Annotated[
    int | None, typer.Argument(metavar="[ID]", help="Of the checkpoint; or --run with --step.", min=1)
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Kept in the audit.", show_default=False)
]
WaitOption = Annotated[
    str | None, typer.Option("--wait", metavar="DURATION", help="Wait for the verdict; e.g. 120s.")
]
AssuranceOption = Annotated[
    Assurance | None,
    typer.Option("--min-assurance", help="How far the proof must go; default: the run's policy."),
]
ProvenanceOption = Annotated[
    Provenance | None, typer.Option("--min-provenance", help="What must be known of its origin.")
]
StoreOption = Annotated[
    list[str] | None,
    typer.Option("--store", metavar="NAME=PATH", help="Where a store is on this machine; repeatable."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Rows at most.")]

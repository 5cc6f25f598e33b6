"""The arguments of `check` as a user sees them; `options` says what they mean."""

from pathlib import Path
from typing import Annotated

import typer

from ckptguard.cli.options import LoadBy
from ckptguard.model.policy import Depth, NumericsMode, StoreTimes

Target = Annotated[
    str, typer.Argument(metavar="PATH_OR_URL", help="A checkpoint, or a folder of steps.", show_default=False)
]
DepthOption = Annotated[Depth, typer.Option("--depth", help="How far to go; each includes those before it.")]
StepOption = Annotated[
    str | None,
    typer.Option("--step", metavar="N|all", help="Which step of a folder of steps; default: the newest."),
]
ManifestOption = Annotated[
    Path | None, typer.Option("--manifest", metavar="FILE", help="Hold it against this manifest.")
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="cpu|cuda[:N]", help="Where to load it.")]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="FILE|GLOBS", help="Each pattern must match a tensor or object."),
]
NumericsOption = Annotated[
    NumericsMode, typer.Option("--numerics", help="What to do with NaN, infinity and all zero.")
]
ReaderOption = Annotated[
    str | None,
    typer.Option("--reader", metavar="torch=2.13,python=3.11", help="The software that will load it."),
]
LoadOption = Annotated[LoadBy, typer.Option("--load", help="stock: run stock dcp.load as well.")]
DirectOption = Annotated[bool, typer.Option("--direct", help="Read the medium, past the page cache.")]
SettleOption = Annotated[
    str | None,
    typer.Option(
        "--settle", metavar="DURATION", help="Look again at what is missing or short after this; 30s."
    ),
]
IgnoreMtimeOption = Annotated[bool, typer.Option("--ignore-mtime", help="Do not look at times at all.")]
TimesOption = Annotated[
    StoreTimes, typer.Option("--times", help="copied: the times here are not the writer's.")
]
StrictObjectsOption = Annotated[
    bool, typer.Option("--strict-objects", help="An object that is not built makes UNKNOWN.")
]
AllowGlobalOption = Annotated[
    list[str] | None,
    typer.Option("--allow-global", metavar="MODULE.NAME", help="A class that you vouch for; repeatable."),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, max=1024, help="Shards read at the same time.")
]
WindowOption = Annotated[
    str | None, typer.Option("--window", metavar="LENGTH", help="Memory for reading; 1GiB.")
]
DeadlineOption = Annotated[
    str | None, typer.Option("--deadline", metavar="DURATION", help="Longest time for the load.")
]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="FOLDER", help="Links may lead below this, no further.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]

"""`ckptguard token`: make, list and revoke tokens."""

import sys
from itertools import islice
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import is_live, plain, write_lines, write_text
from ckptguard.cli.options import parse_duration
from ckptguard.cli.service import say, service
from ckptguard.cli.service_rows import age_text
from ckptguard.cli.table import cell, render_table
from ckptguard.client.decode import encode
from ckptguard.clock import SystemClock
from ckptguard.model.service import Scope

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Make, list and revoke tokens; needs a token with the scope admin.

\b
Examples:
  ckptguard token create trainer --scope register --scope read
  ckptguard token create canary-3 --scope work --expires-in 720h
  ckptguard token list
  ckptguard token revoke 4
""",
)

TITLES = ("id", "name", "scopes", "project", "begins", "made", "state")


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="For a person.", show_default=False)],
    *,
    scope: Annotated[list[Scope], typer.Option("--scope", help="What it may do; repeatable.")],
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only in this project.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="DURATION", help="Default: never.")
    ] = None,
    json: arg.JsonOption = False,
) -> int:
    """Make a token; its text goes to standard output, and is never shown again."""
    expires_in_s = None if expires_in is None else parse_duration("--expires-in", expires_in)
    with service() as client:
        made = client.create_token(name, scopes=scope, project=project, expires_in_s=expires_in_s)
    if json:
        write_json({"schema": SCHEMA, "token": encode(made)})
        return ExitCode.OK
    say(f"token {made.id} ({made.name}); keep it now, it is not shown again")
    write_text(f"{made.token}\n", sys.stdout)
    return ExitCode.OK


@app.command("list")
def list_tokens(*, limit: service_arg.LimitOption = 200, json: arg.JsonOption = False) -> int:
    """List tokens, without their text."""
    with service() as client:
        found = list(islice(client.tokens(), limit))
    if json:
        write_json({"schema": SCHEMA, "tokens": encode(found)})
        return ExitCode.OK
    now = SystemClock().now()
    rows = []
    for token in found:
        is_over = token.expires_at is not None and token.expires_at <= now
        state = "revoked" if token.revoked_at else "expired" if is_over else "good"
        shown = (token.id, token.name, ",".join(token.scopes), token.project, token.hint)
        rows.append((*map(cell, shown), cell(age_text(token.created_at, now)), cell(state)))
    write_lines(render_table(TITLES, rows, is_terminal=is_live(sys.stdout)), sys.stdout)
    return ExitCode.OK


@app.command()
def revoke(
    token: Annotated[int, typer.Argument(metavar="ID", min=1, show_default=False)],
    *,
    json: arg.JsonOption = False,
) -> int:
    """Revoke a token: from now on it opens nothing."""
    with service() as client:
        client.revoke_token(token)
    if json:
        write_json({"schema": SCHEMA, "revoked": token})
    else:
        write_lines([plain(f"token {token} is revoked")], sys.stdout)
    return ExitCode.OK

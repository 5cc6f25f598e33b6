"""`ckptguard serve`: the API, one worker and a database, by one command."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.log_lines import LogForm, LogOption, form_for
from ckptguard.cli.standard_input import UntilStdinEnds, stop_when_input_ends
from ckptguard_api.commands.announcement import announce
from ckptguard_api.serving.listening import Listener
from ckptguard_api.serving.plan import ServePlan, settings_of, stores_of
from ckptguard_api.serving.run import Address, serve
from ckptguard_api.structured_logs import configure_logs

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="""Serve: take registrations, validate them in the background, answer launchers.

One command and no other server: the API, one worker, and an SQLite file in the data folder. With
CKPTGUARD_DATABASE_URL=postgresql+psycopg://… the state lives in PostgreSQL. The first start makes an admin
token and puts it into the data folder; the commands of `ckptguard` on this machine find it there. On a
terminal it says little, and its logs lie in the data folder; elsewhere they are JSON on standard error.

\b
Examples:
  ckptguard serve --store ckpts=/data/checkpoints
  ckptguard serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --public-url https://ckpt.example:8080
  ckptguard serve --database-url postgresql+psycopg://user@host/ckptguard --migrate --api-processes 4
""",
)


def _tls(file: str) -> str:
    return f"PEM file; {file}. Another address than this machine's own needs it."


@app.command("serve")
def serve_command(  # noqa: PLR0913 - each is an option of the command line
    *,
    host: Annotated[str | None, typer.Option(help="Listen here; default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default 8080; 0: a free one.")] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URL", help="Allow checkpoints below this root; repeat for more."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="SQLite file, token, address.")] = None,
    database_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another database; the environment hides a password.")
    ] = None,
    migrate: Annotated[bool, typer.Option("--migrate", help="Bring PostgreSQL to this version.")] = False,
    api_processes: Annotated[int, typer.Option(min=1, max=64, help="With PostgreSQL only.")] = 1,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Start none; others join.")] = False,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="What the worker and clients here call.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help=_tls("certificate chain"))] = None,
    tls_key: Annotated[Path | None, typer.Option(help=_tls("its key"))] = None,
    tls_terminated_by_proxy: Annotated[
        bool, typer.Option("--tls-terminated-by-proxy", help="A proxy in front encrypts.")
    ] = False,
    new_token: Annotated[bool, typer.Option("--new-token", help="Make another admin token.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One object on standard output when ready.")] = False,
    log: LogOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log each request's details.")] = False,
    until_stdin_ends: UntilStdinEnds = False,
) -> None:
    """Serve until a signal comes."""
    given = {
        "host": host,
        "port": port,
        "stores": stores_of(store or []),
        "data_dir": data_dir,
        "database_url": database_url,
    }
    settings = settings_of(given)
    form = form_for(log, sys.stderr)
    plan = ServePlan(
        settings=settings,
        listener=Listener(
            host=settings.host,
            port=settings.port,
            tls_cert=tls_cert,
            tls_key=tls_key,
            is_tls_terminated_by_proxy=tls_terminated_by_proxy,
        ),
        public_url=public_url,
        num_processes=api_processes,
        has_worker=not no_worker,
        is_migration_wanted=migrate,
        is_new_token_wanted=new_token,
        is_for_person=form is LogForm.HUMAN,
    )
    configure_logs(logging.DEBUG if verbose else logging.INFO, is_for_good=True)
    if until_stdin_ends:
        stop_when_input_ends()
    serve(plan, lambda address: _tell(address, settings.stores, form, is_json=json))


def _tell(address: Address, stores: Mapping[str, str], form: LogForm, *, is_json: bool) -> None:
    if is_json:
        write_json({"schema": SCHEMA, "data_dir": str(address.folder.path), **address.to_json()})
    announce(address, stores, form)

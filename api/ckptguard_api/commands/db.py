"""`ckptguard db`: bring the database's schema to this version, or back."""

from typing import Annotated

import typer
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.errors import ConfigError
from ckptguard_api.settings import Settings
from ckptguard_migrations import current, downgrade, head, upgrade

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Bring the database's schema to this version, or back.

The database is the one that the service would use: CKPTGUARD_DATABASE_URL, else the SQLite file in
CKPTGUARD_DATA_DIR. Several upgrades at once run one after the other; the last finds nothing to do.

\b
Examples:
  ckptguard db upgrade
  ckptguard db current --json
""",
)

DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", metavar="URL", help="Another database; the environment hides a password."),
]
Json = Annotated[bool, typer.Option("--json", help="One object on standard output.")]


@app.command("upgrade")
def upgrade_command(
    revision: Annotated[str, typer.Argument(metavar="[REVISION]")] = "head",
    *,
    database_url: DatabaseUrl = None,
    json: Json = False,
) -> None:
    """Bring the schema to a later revision, all steps or none."""
    url = _address(database_url)
    before = current(url)
    after = upgrade(url, revision)
    _tell(url, before=before, after=after, is_json=json)


@app.command("downgrade")
def downgrade_command(
    revision: Annotated[str, typer.Argument(metavar="REVISION", show_default=False)],
    *,
    database_url: DatabaseUrl = None,
    lose_data: Annotated[
        bool, typer.Option("--lose-data", help="Yes: what only the later schema can hold is deleted.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the schema to an earlier revision; `base` leaves no table. Make a backup first."""
    if not lose_data:
        msg = "a downgrade deletes what only the later schema can hold; make a backup, then add --lose-data"
        raise ConfigError(msg)
    url = _address(database_url)
    before = current(url)
    after = downgrade(url, revision)
    _tell(url, before=before, after=after, is_json=json)


@app.command("current")
def current_command(*, database_url: DatabaseUrl = None, json: Json = False) -> None:
    """Show the revision that the schema is at, and the newest that this version knows."""
    url = _address(database_url)
    revision = current(url)
    _tell(url, before=revision, after=revision, is_json=json)


def _address(database_url: str | None) -> str:
    settings = Settings()
    if database_url is not None:
        return database_url
    if settings.is_embedded:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.database_address


def _tell(url: str, *, before: str | None, after: str | None, is_json: bool) -> None:
    database = _without_password(url)
    if is_json:
        answer = {"database": database, "before": before, "revision": after, "head": head()}
        write_json({"schema": SCHEMA, **answer, "is_at_head": after == head()})
        return
    changed = f"{before or 'empty'} -> {after or 'empty'}" if before != after else (after or "empty")
    typer.echo(f"{database}: {changed} (newest: {head()})")


def _without_password(url: str) -> str:
    try:
        shown = make_url(url)
    except ArgumentError as error:
        msg = "the database's URL cannot be read"
        raise ConfigError(msg) from error
    # libpq takes a password as a parameter, too.
    hidden = {name: "hidden" if "pass" in name else value for name, value in shown.query.items()}
    return shown.set(query=hidden).render_as_string(hide_password=True)

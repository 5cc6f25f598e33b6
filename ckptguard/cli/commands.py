"""The commands by name, imported only when one is run: `ckptguard --help` stays quick and light."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ckptguard.cli.plain_text import printable
from ckptguard.errors import ConfigError

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

PLUGIN_GROUP: Final = "ckptguard.commands"
"""Entry points of this group add commands: name = command, object = a `typer.Typer`."""


class BuiltIn(NamedTuple):
    """A command of this package.

    Args:
        module: Where its `app`, a `typer.Typer` of one command, is.
        summary: Its line in `ckptguard --help`.
    """

    module: str
    summary: str


BUILT_INS: Final[Mapping[str, BuiltIn]] = {
    "check": BuiltIn("ckptguard.cli.check", "Prove a checkpoint: every byte read once, and loaded."),
    "manifest": BuiltIn("ckptguard.cli.manifest", "Make a manifest of what is stored, or show one."),
    "damage": BuiltIn("ckptguard.cli.damage", "Inject a named fault into a copy, for drills."),
    "register": BuiltIn("ckptguard.cli.register", "Register a checkpoint, so that it is validated."),
    "adopt": BuiltIn(
        "ckptguard.cli.adopt", "Find and register the checkpoints below a root, once or for ever."
    ),
    "announce": BuiltIn("ckptguard.cli.announce", "Say that a save begins."),
    "spool": BuiltIn("ckptguard.cli.spool", "Registrations of guarded saves that wait to be sent."),
    "resume": BuiltIn("ckptguard.cli.resume", "Print the last checkpoint proven good, for a launcher."),
    "restarted": BuiltIn("ckptguard.cli.restarted", "Tell what became of a start, for a launcher."),
    "run": BuiltIn("ckptguard.cli.run", "Make a run, look at it, change its policy."),
    "runs": BuiltIn("ckptguard.cli.runs", "List the runs, and what a failure now would cost."),
    "history": BuiltIn("ckptguard.cli.history", "List the checkpoints of a run."),
    "show": BuiltIn("ckptguard.cli.show", "Show one checkpoint."),
    "explain": BuiltIn("ckptguard.cli.explain", "What is damaged, where, since when, and what to do next."),
    "watch": BuiltIn("ckptguard.cli.watch", "Watch a run live."),
    "revalidate": BuiltIn("ckptguard.cli.revalidate", "Ask for a new verdict."),
    "pin": BuiltIn("ckptguard.cli.pin", "Keep a checkpoint from being deleted."),
    "quarantine": BuiltIn("ckptguard.cli.quarantine", "Keep launchers from a checkpoint."),
    "release": BuiltIn("ckptguard.cli.release", "Lift the holds of a checkpoint."),
    "note": BuiltIn("ckptguard.cli.note", "Write down what is known about a checkpoint."),
    "token": BuiltIn("ckptguard.cli.tokens", "Make, list and revoke tokens."),
    "doctor": BuiltIn("ckptguard.cli.doctor", "See what this machine can check, and what is missing."),
}


class LazyGroup(TyperGroup):
    """A group that knows the names of its commands, and imports a command when it is run."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Return built-in names, then those of plug-ins, sorted."""
        del ctx
        return [*BUILT_INS, *sorted(_plugins())]

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Import one command."""
        del ctx
        if cmd_name in BUILT_INS:
            app = import_module(BUILT_INS[cmd_name].module).app
        elif (plugin := _plugins().get(cmd_name)) is not None:
            app = load_plugin(plugin)
        else:
            return None
        command: Command = get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the list of commands without importing any."""
        del ctx
        rows = [(name, built_in.summary) for name, built_in in BUILT_INS.items()]
        rows += [(name, f"(from {_owner(plugin)})") for name, plugin in sorted(_plugins().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _plugins() -> dict[str, EntryPoint]:
    found = {plugin.name: plugin for plugin in entry_points(group=PLUGIN_GROUP)}
    return {name: plugin for name, plugin in found.items() if name not in BUILT_INS}


def _owner(plugin: EntryPoint) -> str:
    return printable(plugin.dist.name) if plugin.dist else "a plug-in"


def load_plugin(plugin: EntryPoint) -> typer.Typer:
    """Import what an entry point names.

    Raises:
        ConfigError: It cannot be imported, or is not a `typer.Typer`.
    """
    try:
        app = plugin.load()
    except (ImportError, AttributeError) as error:
        msg = f"command {plugin.name!r} of {_owner(plugin)} cannot be imported: {error}"
        raise ConfigError(msg) from error
    if not isinstance(app, typer.Typer):
        msg = f"command {plugin.name!r} of {_owner(plugin)} is not a typer.Typer"
        raise ConfigError(msg)
    return app

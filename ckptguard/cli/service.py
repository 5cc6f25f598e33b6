"""The service as a command sees it: found, asked, and its warnings said."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptguard.cli.plain_text import printable
from ckptguard.client.address import find_service
from ckptguard.client.answers import Checkpoint
from ckptguard.client.client import Client
from ckptguard.client.exchange import DEFAULT_DEADLINE_S
from ckptguard.errors import ConfigError, NotFoundError


@contextmanager
def service(*, deadline_s: float = DEFAULT_DEADLINE_S) -> Iterator[Client]:
    """Yield a client of the service that the environment names; say what should be changed there.

    Raises:
        ConfigError: No service is known.
    """
    address = find_service(os.environ, folder=Path.cwd())
    for warning in address.warnings:
        say(f"WARNING: {warning}")
    with Client(address, deadline_s=deadline_s) as client:
        yield client


def say(text: str) -> None:
    """Write one line for a person on standard error."""
    sys.stderr.write(f"ckptguard: {printable(text, max_chars=2000)}\n")
    sys.stderr.flush()


def checkpoint_of_step(client: Client, run: str, step: int) -> Checkpoint:
    """Return the newest checkpoint of a step; where a step was saved twice, the later save.

    Raises:
        NotFoundError: There is none.
    """
    found = next(client.checkpoints(run=run, step=step, limit=1), None)
    if found is None:
        msg = f"run {run} has no checkpoint of step {step}"
        raise NotFoundError(msg)
    return found


def checkpoint_named(client: Client, checkpoint_id: int | None, *, run: str | None, step: int | None) -> int:
    """Return the id of the checkpoint that a command means: `ID`, or `--run` with `--step`.

    Raises:
        ConfigError: Neither, or both.
        NotFoundError: There is none.
    """
    if (checkpoint_id is None) == (run is None or step is None):
        msg = "name a checkpoint: its ID, or --run NAME with --step N"
        raise ConfigError(msg)
    if checkpoint_id is not None:
        return checkpoint_id
    assert run is not None  # noqa: S101 - said above
    assert step is not None  # noqa: S101 - said above
    return checkpoint_of_step(client, run, step).id

"""A long-running command that ends with whoever started it, by a pipe that both hold."""

import os
import signal
import threading
from contextlib import suppress
from typing import Annotated, Final

import typer

_STANDARD_INPUT: Final = 0

UntilStdinEnds = Annotated[
    bool,
    typer.Option(
        "--until-stdin-ends",
        help="Stop, as at SIGTERM, when standard input ends: give it a pipe, and it ends with you, "
        "however you end.",
    ),
]


def stop_when_input_ends() -> None:
    """Have this process sent SIGTERM when its standard input ends; what comes before that is not looked at.

    The kernel closes a pipe when the last process that holds its other end dies, even by SIGKILL.
    """
    threading.Thread(target=_stop_at_end, name="standard-input", daemon=True).start()


def _stop_at_end() -> None:
    with suppress(OSError):  # it was closed from the start
        while os.read(_STANDARD_INPUT, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)

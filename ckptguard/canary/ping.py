"""Whether a child that waits for its job still answers: asked before the job is handed over."""

import os
import selectors
import time
from collections.abc import Callable
from typing import BinaryIO, Final

from ckptguard.canary.events import EventLines, parse_event
from ckptguard.canary.job import write_ping
from ckptguard.canary.process import CanaryProcess
from ckptguard.errors import CanaryError

ANSWER_S: Final = 5.0
"""A child that has torch imported does nothing but wait for a word."""
IMPORT_S: Final = 120.0
"""Importing torch, on a busy machine with a cold disk."""
_POLL_S: Final = 0.5
_MAX_EVENT_BYTES: Final = 4096


def answers(process: CanaryProcess, *, is_wanted: Callable[[], bool]) -> bool:
    """Ask a warm child for a word, and wait for it; one that still imports torch is given the time.

    Args:
        process: Started warm; it has no job.
        is_wanted: Once it says no the answer is yes: whoever runs the job looks for itself.
    """
    stdin: BinaryIO = process.child.stdin  # type: ignore[assignment] # a pipe
    until_s = time.monotonic() + IMPORT_S
    try:
        write_ping(stdin)
        stdin.flush()
        while (left_s := until_s - time.monotonic()) > 0 and is_wanted():
            words = _words(process, min(left_s, _POLL_S))
            if "pong" in words:
                return True
            if "warm" in words:
                until_s = min(until_s, time.monotonic() + ANSWER_S)
    except (BrokenPipeError, CanaryError):
        return False
    return not is_wanted()


def _words(process: CanaryProcess, wait_s: float) -> list[str]:
    """Return what it said since, at the latest after some seconds.

    Raises:
        CanaryError: It ended, or wrote something else.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(process.events, selectors.EVENT_READ)
        if not selector.select(wait_s):
            return []
    chunk = os.read(process.events.fileno(), _MAX_EVENT_BYTES)
    if not chunk:
        msg = "the canary child ended while it waited for a job"
        raise CanaryError(msg)
    return [parse_event(line)["event"] for line in EventLines(max_bytes=_MAX_EVENT_BYTES).feed(chunk)]

"""A child that nobody waits for any more ends: its parent's death is its own."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, even if it is stopped.

    Whoever starts a child that is to outlive a call starts it from a thread that outlives the child.
    On another system than Linux nothing is done: a closed standard input says the same, later.

    Args:
        parent_pid: Who started this process; if it is gone already, this process ends here.
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)

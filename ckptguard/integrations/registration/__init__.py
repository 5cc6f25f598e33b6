"""Tell the service of a save, in the background: first a file in a spool, then a thread that sends it.

A save never waits for the service. What could not be sent stays in the spool and is sent by the same
process, by the next one that saves, or by `ckptguard spool --send`.
"""

from ckptguard.integrations.incidents import counters
from ckptguard.integrations.registration.entry import Entry
from ckptguard.integrations.registration.held import discard, hold, release
from ckptguard.integrations.registration.sender import announce, flush, register, wake
from ckptguard.integrations.registration.spool import Spool, spool_folder

__all__ = [
    "Entry",
    "Spool",
    "announce",
    "counters",
    "discard",
    "flush",
    "hold",
    "register",
    "release",
    "spool_folder",
    "wake",
]

"""How a launcher's question may end, and what it may get while nobody answers (design §9)."""

from enum import StrEnum


class OnUnavailable(StrEnum):
    """What a launcher may get while the service gives no answer."""

    FAIL = "fail"
    LAST_KNOWN = "last-known"  # the last answer that was good; never called proven now
    NEWEST_COMMITTED = "newest-committed"  # by its format alone; never called VALID


class Ending(StrEnum):
    """How `resume` ends; `cli.exit_codes` knows the numbers."""

    PROVEN = "proven"  # VALID as asked, and just seen whole
    BELOW = "below"  # only a VALID below what was asked, given out where the caller takes it
    LAST_KNOWN = "last_known"
    NEWEST_COMMITTED = "newest_committed"
    TRY_AGAIN = "try_again"  # only what time can change
    NONE_USABLE = "none_usable"  # checkpoints exist
    UNKNOWN_RUN = "unknown_run"
    EMPTY = "empty"  # the run is known, and has no checkpoint
    FRESH = "fresh"  # a start from nothing, because the caller said so

"""Keeps the tiers of a run's queue true after every change of it."""

from ckptguard_api.database import Transaction
from ckptguard_api.repositories.validations import is_protected_above, newest_open, set_newest


def set_tiers(tx: Transaction, run_id: int) -> None:
    """Let the newest open validation of a run, whose lock is held, come first.

    It comes first only while no checkpoint as new is VALID: behind a VALID the run is protected already.
    So a verdict that is not VALID makes the next older one the newest, and a VALID makes none.
    """
    newest = newest_open(tx, run_id)
    is_first = newest is not None and not is_protected_above(tx, newest)
    set_newest(tx, run_id, newest.id if newest is not None and is_first else None)

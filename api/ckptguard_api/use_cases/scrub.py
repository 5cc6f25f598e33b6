"""Queue old verdicts to be proven again: storage rots while nobody reads it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.model.policy import Depth
from ckptguard.model.service import ValidationReason
from ckptguard.model.verdict import Assurance
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.queue import queue_validation
from ckptguard_api.leasing.schedule import Round
from ckptguard_api.repositories.runs import lock_run
from ckptguard_api.repositories.watching import count_open_scrubs, longest_unread, scrubbed_stores

OPEN_SCRUBS: Final = 50
"""Of one store, queued or running: scrubs come in no flood, however much is overdue."""

_DEPTH_OF: Final[Mapping[Assurance, Depth]] = {
    Assurance.STRUCTURE: Depth.STRUCTURE,
    Assurance.CONTENT: Depth.CONTENT,
    Assurance.LOADED: Depth.LOAD,
    Assurance.RESUMABLE: Depth.LOAD,
}


def queue_scrubs(tx: Transaction, cursor: int) -> Round:
    """Queue some of the longest unread checkpoints of the next store, as deep as their verdict goes.

    One run a round: a transaction that locks several would have to lock them in everybody's order.
    """
    stores = scrubbed_stores(tx, after_id=cursor, limit=1)
    if not stores:
        return Round(cursor=0)
    store = stores[0]
    wanted = OPEN_SCRUBS - count_open_scrubs(tx, store.id)
    due = longest_unread(tx, store, limit=wanted) if wanted > 0 else ()
    if not due:
        return Round(cursor=store.id, is_more=True)
    lock_run(tx, due[0].run_id)
    # Read again: what was due before the lock may be superseded, or asked for, by now.
    _queue(tx, longest_unread(tx, store, limit=wanted, run_id=due[0].run_id))
    return Round(cursor=cursor, is_more=True)


def _queue(tx: Transaction, due: Sequence[Row[Any]]) -> None:
    for checkpoint in due:
        depth = _DEPTH_OF[Assurance(checkpoint.assurance)]
        queue_validation(tx, checkpoint, reason=ValidationReason.SCRUB, depth=depth, actor=SERVICE)

"""Ask again, by itself, for verdicts that time may change: a store that was away, a worker that was lost.

What is due stands on the checkpoint (`retry_at`), written with the verdict that is in doubt; so no restart
loses it, and whoever asks meanwhile takes it off (`leasing.recording`, `repositories.validations`).
"""

from typing import Final

from ckptguard.model.policy import Depth
from ckptguard.model.service import ValidationReason
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.queue import queue_validation
from ckptguard_api.leasing.schedule import Round
from ckptguard_api.repositories.retries import count_open_retries, next_run_with_retries, retries_due
from ckptguard_api.repositories.runs import lock_run

OPEN_RETRIES: Final = 10
"""Of one run, queued or running: an outage that left thousands in doubt floods no queue."""


def queue_retries(tx: Transaction, cursor: int) -> Round:
    """Queue the newest checkpoints of the next run that are due, as deep as they were asked for last.

    One run a round: a transaction that locks several would have to lock them in everybody's order.

    Args:
        tx: Of this round.
        cursor: Id of the run of the round before.
    """
    run_id = next_run_with_retries(tx, after_id=cursor)
    if run_id is None:
        return Round(cursor=0)
    lock_run(tx, run_id)
    wanted = max(0, OPEN_RETRIES - count_open_retries(tx, run_id))
    # Read after the lock: what was due before it may be superseded, or asked for, by now.
    for checkpoint in retries_due(tx, run_id, limit=wanted):
        depth = Depth(checkpoint.last_depth)
        queue_validation(tx, checkpoint, reason=ValidationReason.RETRY, depth=depth, actor=SERVICE)
    return Round(cursor=run_id, is_more=True)

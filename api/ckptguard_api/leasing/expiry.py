"""Ends leases that are over: no heartbeat, no progress, or no end at the deadline."""

from typing import Final

from ckptguard_api.database import Transaction
from ckptguard_api.domain.attempt_rules import ending_of_expired
from ckptguard_api.leasing.endings import end_without_verdict
from ckptguard_api.leasing.fence import Held
from ckptguard_api.repositories.leases import find_expired, lock_lease
from ckptguard_api.repositories.runs import try_lock_runs
from ckptguard_api.repositories.validations import lock_checkpoint, lock_validation
from ckptguard_api.settings import Settings

EXPIRED_AT_ONCE: Final = 20
"""Leases that one transaction ends, at most."""


def end_expired(tx: Transaction, settings: Settings, *, limit: int = EXPIRED_AT_ONCE) -> int:
    """End leases that are over, longest over first.

    Those whose run another transaction holds are left to the next call: it may be ending them.

    Returns:
        How many were ended; as many as `limit`: there may be more.
    """
    found = find_expired(tx, limit=limit)
    runs = try_lock_runs(tx, sorted({row.run_id for row in found}))
    ended = 0
    for row in sorted(found, key=lambda row: (row.run_id, row.checkpoint_id)):
        if row.run_id not in runs:
            continue
        checkpoint = lock_checkpoint(tx, row.checkpoint_id)
        validation = lock_validation(tx, row.validation_id)
        lease = lock_lease(tx, row.attempt_id)
        if lease is None or lease.expires_at > tx.now:
            continue
        held = Held(run=runs[row.run_id], checkpoint=checkpoint, validation=validation, lease=lease)
        _end(tx, held, settings)
        ended += 1
    return ended


def _end(tx: Transaction, held: Held, settings: Settings) -> None:
    ending, reason = ending_of_expired(
        tx.now,
        progress_at=held.lease.progress_at,
        stall_after_s=settings.stall_after_s,
        deadline_at=held.lease.deadline_at,
    )
    end_without_verdict(tx, held, ending=ending, reason=reason, settings=settings)

"""The queue of validations: put in, found again, taken out."""

from typing import Any

from sqlalchemy import Row

from ckptguard.model.policy import Depth
from ckptguard.model.service import ValidationReason
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor


def queue_validation(
    tx: Transaction, checkpoint: Row[Any], *, reason: ValidationReason, depth: Depth, actor: Actor
) -> tuple[Row[Any], bool]:
    """Ask for a verdict on a checkpoint, whose run the caller has locked.

    Returns:
        The open validation, and whether it is new: asking again gives the one that is open.
    """
    raise NotImplementedError


def cancel_open(tx: Transaction, checkpoint_id: int, *, why: str, actor: Actor) -> None:
    """Take back what is queued or running for a checkpoint that nobody wants judged any more.

    A running attempt learns it at its next heartbeat; its lease ends here.
    """
    raise NotImplementedError

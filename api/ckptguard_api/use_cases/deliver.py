"""Send what is due: claim, send outside of any transaction, write down what came of it.

At least once: a process that stops between sending and writing down loses its claim, and another sends
the same message, with the same `webhook-id`, by which a receiver knows it.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from sqlalchemy import Row, select

from ckptguard import __version__
from ckptguard.clock import Clock, SystemClock
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.backoff import delay_s_after
from ckptguard_api.domain.webhook_message import Happening, message_body
from ckptguard_api.domain.webhook_signature import signature_headers
from ckptguard_api.repositories import deliveries as rows
from ckptguard_api.sending import Outcome, Sender
from ckptguard_api.tables import webhooks

BATCH: Final = 16
"""Deliveries sent at the same time."""

BATCH_PER_WEBHOOK: Final = 2
_MARGIN_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A delivery that is claimed, ready to be sent."""

    held: rows.DeliveryRow
    url: str
    headers: Mapping[str, str]
    body: bytes
    sent_at: datetime


@dataclass(kw_only=True)
class Deliverer:
    """Sends the deliveries of all projects.

    Args:
        database: Where they are.
        sender: The way out.
        chance: Jitter of the times between tries.
        clock: Measures how long a try took.
    """

    database: Database
    sender: Sender
    chance: random.Random
    clock: Clock = field(default_factory=SystemClock)

    @property
    def hold_s(self) -> float:
        """How long a claim holds: longer than sending ever takes."""
        return self.sender.timeout_s + _MARGIN_S

    def deliver_due(self) -> int:
        """Send one batch of what is due, and return how many were claimed.

        Raises:
            ServiceUnavailableError: The database gave no answer; what was sent is sent again later.
        """
        letters = self.claim()
        if letters:
            asyncio.run(self._send_all(letters))
        return len(letters)

    def claim(self) -> Sequence[Letter]:
        """Claim one batch; nobody else sends these until the claim ends."""
        with self.database.write() as tx:
            held = rows.claim_due(tx, limit=BATCH, limit_per_webhook=BATCH_PER_WEBHOOK, hold_s=self.hold_s)
            return _letters(tx, held) if held else ()

    def write_down(self, letter: Letter, outcome: Outcome, *, seconds: float) -> bool:
        """Record one try; False: the claim was lost, and nothing is written."""
        attempted = rows.Attempted(
            at=letter.sent_at, status=outcome.status, error=outcome.error, seconds=seconds
        )
        with self.database.write() as tx:
            delay_s = self._delay_s(letter, outcome)
            next_at = None if delay_s is None else tx.now + timedelta(seconds=delay_s)
            state = _state(outcome, next_at)
            return rows.finish_try(tx, letter.held, attempted, state=state, next_at=next_at)

    def _delay_s(self, letter: Letter, outcome: Outcome) -> float | None:
        if outcome.error is None or outcome.status == HTTPStatus.GONE:
            return None  # 410: the receiver says that it is no more (Standard Webhooks)
        return delay_s_after(letter.held.tries + 1, chance=self.chance)

    async def _send_all(self, letters: Sequence[Letter]) -> None:
        ended = await asyncio.gather(*map(self._send, letters), return_exceptions=True)
        for outcome in ended:  # after all were sent: one that cannot be written down ends no other
            if outcome is not None:
                raise outcome

    async def _send(self, letter: Letter) -> None:
        began_s = self.clock.monotonic_s()
        outcome = await self.sender.post(letter.url, headers=letter.headers, body=letter.body)
        seconds = self.clock.monotonic_s() - began_s
        await asyncio.to_thread(self.write_down, letter, outcome, seconds=seconds)


def _state(outcome: Outcome, next_at: datetime | None) -> str:
    if outcome.error is None:
        return rows.DELIVERED
    return rows.GIVEN_UP if next_at is None else rows.PENDING


def _letters(tx: Transaction, held: Sequence[rows.DeliveryRow]) -> Sequence[Letter]:
    receivers = select(webhooks).where(webhooks.c.id.in_({row.webhook_id for row in held}))
    webhook_of = {row.id: row for row in tx.execute(receivers)}
    events = {row.id: row for row in rows.happenings_of(tx, {row.event_id for row in held})}
    return [_letter(row, webhook_of[row.webhook_id], events[row.event_id], sent_at=tx.now) for row in held]


def _letter(held: rows.DeliveryRow, webhook: Row[Any], event: Row[Any], *, sent_at: datetime) -> Letter:
    body = message_body(_happening(event))
    signed = signature_headers(
        signing=webhook.secrets, message_id=held.message_id, sent_at=sent_at, body=body
    )
    own = {"content-type": "application/json", "user-agent": f"ckptguard/{__version__}"}
    return Letter(held=held, url=webhook.url, headers=own | signed, body=body, sent_at=sent_at)


def _happening(event: Row[Any]) -> Happening:
    names = {
        "project": event.project,
        "run": event.run,
        "checkpoint_id": event.checkpoint_id,
        "step": event.step,
        "save_id": event.save_id,
        "validation_id": event.validation_id,
    }
    return Happening(event_id=event.id, kind=event.kind, at=event.at, names=names, data=event.data)

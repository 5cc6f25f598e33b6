"""Turn events into deliveries: the outbox of webhooks."""

from typing import Any, Final

from sqlalchemy import Row, select

from ckptguard_api.database import Transaction
from ckptguard_api.domain.webhook_message import WEBHOOK_KINDS
from ckptguard_api.leasing.schedule import Round
from ckptguard_api.repositories.deliveries import add_delivery
from ckptguard_api.repositories.webhooks import WebhookRow, list_enabled
from ckptguard_api.tables import events

EVENTS_A_ROUND: Final = 200
_KINDS: Final = frozenset(str(kind) for kind in WEBHOOK_KINDS)


def fan_out(tx: Transaction, cursor: int) -> Round:
    """Make a delivery for each webhook that asked for an event after `cursor`, and move on.

    Guarantees: deliveries and cursor are committed together, so no event is missed and none comes twice;
    ids of events become visible in their order (`event_buffer`).
    """
    query = select(events).where(events.c.id > cursor).order_by(events.c.id).limit(EVENTS_A_ROUND)
    found = tx.execute(query).all()
    told = [event for event in found if event.kind in _KINDS]
    webhooks = list_enabled(tx) if told else ()
    for event in told:
        for webhook in webhooks:
            if _is_asked_for(webhook, event):
                add_delivery(tx, webhook.id, event.id)
    end = found[-1].id if found else cursor
    return Round(cursor=end, is_more=len(found) == EVENTS_A_ROUND)


def _is_asked_for(webhook: WebhookRow, event: Row[Any]) -> bool:
    # An event about no project, e.g. of a worker that works for all, concerns every one.
    is_its_own = event.project_id in (None, webhook.project_id)
    return is_its_own and event.kind in webhook.kinds and event.id > webhook.after_event_id

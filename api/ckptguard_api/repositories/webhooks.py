"""Rows of `webhooks`: who wants to be told."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, insert, select, update

from ckptguard.errors import NotFoundError
from ckptguard_api.database import Transaction
from ckptguard_api.tables import webhooks

MAX_WEBHOOKS: Final = 50
"""Of one project; every event that one asks for is a delivery to each."""

WebhookRow = Row[Any]
"""A row of `webhooks`, all columns."""


def add_webhook(tx: Transaction, values: dict[str, Any]) -> int:
    """Add a webhook, and return its id."""
    row_id: int = tx.execute(insert(webhooks).values(values).returning(webhooks.c.id)).scalar_one()
    return row_id


def list_webhooks(tx: Transaction, project_id: int) -> Sequence[WebhookRow]:
    """Return the webhooks of a project that were not removed, oldest first; at most `MAX_WEBHOOKS`."""
    query = select(webhooks).where(webhooks.c.project_id == project_id, webhooks.c.removed_at.is_(None))
    return tx.execute(query.order_by(webhooks.c.id)).all()


def list_enabled(tx: Transaction) -> Sequence[WebhookRow]:
    """Return the webhooks of all projects that events are delivered to."""
    query = select(webhooks).where(webhooks.c.is_enabled, webhooks.c.removed_at.is_(None))
    return tx.execute(query.order_by(webhooks.c.id)).all()


def get_webhook(tx: Transaction, webhook_id: int, *, project_id: int, is_locked: bool = False) -> WebhookRow:
    """Return one webhook.

    Args:
        tx: A writer's where it is locked.
        webhook_id: Its id.
        project_id: Webhooks of other projects are not found.
        is_locked: Let nobody else change it until the commit.

    Raises:
        NotFoundError: There is none, or it was removed.
    """
    query = select(webhooks).where(
        webhooks.c.id == webhook_id, webhooks.c.project_id == project_id, webhooks.c.removed_at.is_(None)
    )
    row = tx.execute(query.with_for_update() if is_locked else query).one_or_none()
    if row is None:
        msg = f"no webhook {webhook_id}"
        raise NotFoundError(msg)
    return row


def set_secrets(tx: Transaction, webhook_id: int, secrets: Sequence[str]) -> None:
    """Replace the secrets, newest first."""
    tx.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(secrets=list(secrets)))


def remove_webhook(tx: Transaction, webhook_id: int, *, removed_at: datetime) -> None:
    """Forget its secrets and send nothing more; its delivery log stays."""
    values = {"removed_at": removed_at, "is_enabled": False, "secrets": []}
    tx.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(values))

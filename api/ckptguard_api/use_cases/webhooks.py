"""Make, list, test and remove webhooks, and look at what was delivered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from ckptguard.errors import ConflictError, InvalidRequestError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.egress import url_problems
from ckptguard_api.domain.subject import Subject
from ckptguard_api.domain.webhook_message import WEBHOOK_KINDS
from ckptguard_api.domain.webhook_signature import SECRETS_KEPT, new_secret
from ckptguard_api.repositories import deliveries as delivery_rows
from ckptguard_api.repositories import webhooks as rows
from ckptguard_api.repositories.event_feed import newest_event_id
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.runs import lock_project
from ckptguard_api.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeWebhook:
    """A webhook, and its newest secret for the only time."""

    row: rows.WebhookRow
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDelivery:
    """A delivery with every try."""

    row: delivery_rows.DeliveryRow
    tries: Sequence[Row[Any]]


def create_webhook(
    services: Services, *, project_id: int, url: str, kinds: Sequence[str], by: Actor
) -> MadeWebhook:
    """Tell this URL what happens from now on; the secret is in the answer and nowhere else.

    Raises:
        InvalidRequestError: The URL or a kind cannot be used; with every reason.
        ConflictError: The project has as many webhooks as it may have.
    """
    _refuse_unusable(services, url, kinds)
    secret = new_secret()
    with services.database.write() as tx:
        lock_project(tx, project_id)
        if len(rows.list_webhooks(tx, project_id)) >= rows.MAX_WEBHOOKS:
            msg = f"a project has at most {rows.MAX_WEBHOOKS} webhooks"
            raise ConflictError(msg)
        values = {
            "project_id": project_id,
            "url": url,
            "secrets": [secret],
            "kinds": sorted(set(kinds)) or [str(kind) for kind in WEBHOOK_KINDS],
            "is_enabled": True,
            "after_event_id": newest_event_id(tx),
            "created_at": tx.now,
            "created_by": by.name,
        }
        webhook_id = rows.add_webhook(tx, values)
        _tell(tx, "created", webhook_id, project_id, by=by)
        return MadeWebhook(row=rows.get_webhook(tx, webhook_id, project_id=project_id), secret=secret)


def webhooks_of(services: Services, *, project_id: int) -> Sequence[rows.WebhookRow]:
    """Return the webhooks of a project, oldest first."""
    with services.database.read() as tx:
        return rows.list_webhooks(tx, project_id)


def rotate_secret(services: Services, webhook_id: int, *, project_id: int, by: Actor) -> MadeWebhook:
    """Make a new secret; the one before signs beside it until the next rotation.

    Raises:
        NotFoundError: There is no such webhook.
    """
    secret = new_secret()
    with services.database.write() as tx:
        row = rows.get_webhook(tx, webhook_id, project_id=project_id, is_locked=True)
        rows.set_secrets(tx, webhook_id, [secret, *row.secrets][:SECRETS_KEPT])
        _tell(tx, "rotated", webhook_id, project_id, by=by)
        return MadeWebhook(row=row, secret=secret)


def remove_webhook(services: Services, webhook_id: int, *, project_id: int, by: Actor) -> None:
    """Send nothing more to it, not even what is pending.

    Raises:
        NotFoundError: There is no such webhook.
    """
    with services.database.write() as tx:
        rows.get_webhook(tx, webhook_id, project_id=project_id, is_locked=True)
        rows.remove_webhook(tx, webhook_id, removed_at=tx.now)
        delivery_rows.give_up_all(tx, webhook_id)
        _tell(tx, "removed", webhook_id, project_id, by=by)


def test_webhook(services: Services, webhook_id: int, *, project_id: int, by: Actor) -> LoggedDelivery:
    """Send it a `webhook.test`, like any other event.

    Raises:
        NotFoundError: There is no such webhook.
    """
    with services.database.write() as tx:
        rows.get_webhook(tx, webhook_id, project_id=project_id, is_locked=True)
        about = Subject(project_id=project_id)
        event = record(tx, EventKind.WEBHOOK_TEST, actor=by, about=about, data={"webhook_id": webhook_id})
    # The event has an id from here on. Who is cut off between the two asks for another test.
    with services.database.write() as tx:
        rows.get_webhook(tx, webhook_id, project_id=project_id, is_locked=True)
        delivery_id = delivery_rows.add_delivery(tx, webhook_id, event.id)
        assert delivery_id is not None, "a new event was delivered before"  # noqa: S101 - cannot happen
        return _logged(tx, delivery_rows.get_delivery(tx, delivery_id, project_id=project_id))


def deliveries_of(
    services: Services, webhook_id: int, *, project_id: int, before_id: int | None, limit: int
) -> Sequence[LoggedDelivery]:
    """Return the deliveries of a webhook with their tries, newest first.

    Raises:
        NotFoundError: There is no such webhook.
    """
    with services.database.read() as tx:
        rows.get_webhook(tx, webhook_id, project_id=project_id)
        found = delivery_rows.list_deliveries(tx, webhook_id, before_id=before_id, limit=limit)
        tries = delivery_rows.tries_of(tx, [row.id for row in found])
        return [LoggedDelivery(row=row, tries=tries[row.id]) for row in found]


def redeliver(services: Services, delivery_id: int, *, project_id: int, by: Actor) -> LoggedDelivery:
    """Send a delivery again, with the same `webhook-id`, whatever became of it.

    Raises:
        NotFoundError: There is no such delivery.
    """
    with services.database.write() as tx:
        row = delivery_rows.send_again(tx, delivery_id, project_id=project_id)
        _tell(tx, "redelivered", row.webhook_id, project_id, by=by, delivery_id=delivery_id)
        return _logged(tx, delivery_rows.get_delivery(tx, delivery_id, project_id=project_id))


def _logged(tx: Transaction, row: delivery_rows.DeliveryRow) -> LoggedDelivery:
    return LoggedDelivery(row=row, tries=delivery_rows.tries_of(tx, [row.id])[row.id])


def _refuse_unusable(services: Services, url: str, kinds: Sequence[str]) -> None:
    allowed = services.settings.webhook_allowed_networks
    problems = [f"/url: {problem}" for problem in url_problems(url, allowed_networks=allowed)]
    known = {str(kind) for kind in WEBHOOK_KINDS}
    problems += [
        f"/kinds/{number}: {kind!r} is none of {', '.join(sorted(known))}"
        for number, kind in enumerate(kinds)
        if kind not in known
    ]
    if problems:
        msg = "the webhook cannot be used"
        raise InvalidRequestError(msg, problems=problems)


def _tell(tx: Transaction, change: str, webhook_id: int, project_id: int, *, by: Actor, **more: int) -> None:
    data = {"webhook_id": webhook_id, "change": change, **more}
    record(tx, EventKind.WEBHOOK_CHANGED, actor=by, about=Subject(project_id=project_id), data=data)

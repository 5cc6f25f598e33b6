"""`/v1/webhooks` and `/v1/deliveries`: who is told what happens, and what came of it."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlalchemy import Row

from ckptguard_api.domain.egress import MAX_URL_CHARS
from ckptguard_api.domain.paging import Query, decode_cursor, encode_cursor
from ckptguard_api.domain.webhook_message import WEBHOOK_KINDS
from ckptguard_api.repositories.webhooks import WebhookRow
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer, RowId
from ckptguard_api.routes.dependencies import AdminDep, ServicesDep
from ckptguard_api.use_cases import webhooks as use_cases
from ckptguard_api.use_cases.webhooks import LoggedDelivery

router = APIRouter(prefix="/v1", tags=["webhooks"])

_MAX_KIND_CHARS = 64


class WebhookRequest(BaseModel):
    """Where to send what happens; no kinds: all that a webhook may ask for."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, StringConstraints(min_length=1, max_length=MAX_URL_CHARS)]
    kinds: Annotated[
        list[Annotated[str, StringConstraints(max_length=_MAX_KIND_CHARS)]],
        Field(max_length=len(WEBHOOK_KINDS), examples=[[str(WEBHOOK_KINDS[0])]]),
    ] = []


class WebhookAnswer(BaseModel):
    """A webhook, without its secrets."""

    id: int
    url: str
    kinds: list[str]
    is_enabled: bool
    created_at: datetime
    created_by: str


class NewSecretAnswer(WebhookAnswer):
    """A webhook, and its newest secret for the only time."""

    secret: str


class TryAnswer(BaseModel):
    """One time that a delivery was sent; `error` is null where it was a success."""

    number: int
    at: datetime
    status: int | None
    error: str | None
    seconds: float


class DeliveryAnswer(BaseModel):
    """One event for one webhook; `message_id` is the `webhook-id` of every try."""

    id: int
    webhook_id: int
    event_id: int
    message_id: str
    state: str
    tries: int
    next_at: datetime | None
    created_at: datetime
    delivered_at: datetime | None
    log: list[TryAnswer]


@router.get("/webhooks")
def list_webhooks(caller: AdminDep, services: ServicesDep) -> PageAnswer[WebhookAnswer]:
    """List the webhooks of the project, oldest first; one page holds all that a project may have."""
    rows = use_cases.webhooks_of(services, project_id=caller.project_id)
    return PageAnswer(items=[WebhookAnswer(**_fields(row, WebhookAnswer)) for row in rows], next=None)


@router.post("/webhooks", status_code=201)
def create_webhook(body: WebhookRequest, caller: AdminDep, services: ServicesDep) -> NewSecretAnswer:
    """Tell a URL what happens from now on; the answer is the only place that ever shows the secret."""
    made = use_cases.create_webhook(
        services, project_id=caller.project_id, url=body.url, kinds=body.kinds, by=caller.actor
    )
    return _with_secret(made.row, made.secret)


@router.post("/webhooks/{webhook_id}/rotate")
def rotate_webhook_secret(webhook_id: RowId, caller: AdminDep, services: ServicesDep) -> NewSecretAnswer:
    """Make a new secret; until the next rotation the one before signs as well."""
    made = use_cases.rotate_secret(services, webhook_id, project_id=caller.project_id, by=caller.actor)
    return _with_secret(made.row, made.secret)


@router.delete("/webhooks/{webhook_id}", status_code=204)
def remove_webhook(webhook_id: RowId, caller: AdminDep, services: ServicesDep) -> None:
    """Send nothing more to it, not even what is pending."""
    use_cases.remove_webhook(services, webhook_id, project_id=caller.project_id, by=caller.actor)


@router.post("/webhooks/{webhook_id}/test", status_code=202)
def test_webhook(webhook_id: RowId, caller: AdminDep, services: ServicesDep) -> DeliveryAnswer:
    """Send it a `webhook.test`; what came of it is in its deliveries soon."""
    sent = use_cases.test_webhook(services, webhook_id, project_id=caller.project_id, by=caller.actor)
    return _delivery(sent)


@router.get("/webhooks/{webhook_id}/deliveries")
def list_deliveries(
    webhook_id: RowId,
    caller: AdminDep,
    services: ServicesDep,
    limit: Limit = FIRST_LIMIT,
    cursor: Cursor = None,
) -> PageAnswer[DeliveryAnswer]:
    """List what was sent, or is to be, newest first, each with its log."""
    query = Query(name=f"deliveries/{webhook_id}", filters={}, kinds=(int,))
    after = decode_cursor(query, cursor)
    found = use_cases.deliveries_of(
        services,
        webhook_id,
        project_id=caller.project_id,
        before_id=None if after is None else int(str(after[0])),
        limit=limit + 1,
    )
    page = found[:limit]
    following = encode_cursor(query, (page[-1].row.id,)) if len(found) > limit else None
    return PageAnswer(items=[_delivery(delivery) for delivery in page], next=following)


@router.post("/deliveries/{delivery_id}/redeliver", status_code=202)
def redeliver(delivery_id: RowId, caller: AdminDep, services: ServicesDep) -> DeliveryAnswer:
    """Send it again now, with the same `webhook-id`, whatever became of it."""
    sent = use_cases.redeliver(services, delivery_id, project_id=caller.project_id, by=caller.actor)
    return _delivery(sent)


def _with_secret(row: WebhookRow, secret: str) -> NewSecretAnswer:
    return NewSecretAnswer(**_fields(row, WebhookAnswer), secret=secret)


def _delivery(delivery: LoggedDelivery) -> DeliveryAnswer:
    own = {name: getattr(delivery.row, name) for name in DeliveryAnswer.model_fields if name != "log"}
    return DeliveryAnswer(**own, log=[TryAnswer(**_fields(row, TryAnswer)) for row in delivery.tries])


def _fields(row: Row[Any], answer: type[BaseModel]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in answer.model_fields}

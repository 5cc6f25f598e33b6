"""The stores of a project, and how each does."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.model.service import EVERY_STORE, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.resume import HeardWorker
from ckptguard_api.repositories import store_health as rows
from ckptguard_api.repositories.resume_details import read_heard_workers
from ckptguard_api.repositories.stores import StoreRow, list_stores
from ckptguard_api.services import Services

LAST_VERDICTS: Final = 50
"""Of a store, that its health is told by."""
MAX_OVERDUE: Final = 1000
_FAILING_IN_A_ROW: Final = 3


class StoreState(StrEnum):
    """How a store does, gravest first."""

    FAILING = "failing"  # the last verdicts were all in doubt, for reasons that time may change
    NO_WORKER = "no_worker"  # something waits, and no worker that was heard of maps it
    WORKING = "working"
    UNUSED = "unused"  # no verdict yet, and nothing waits


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """One store.

    Args:
        row: Of `stores`.
        state: In a word.
        queued: Validations that wait for a worker.
        oldest_at: When the one that waits longest was asked for.
        running: Validations that are worked on.
        workers: Heard of lately, not draining, that map it.
        counts: Of the last verdicts.
        last_valid: Last one of these that was VALID.
        last_bad: Last one of these that was not.
        bytes_per_s: Read in the last verdicts, on average; None: nothing was read.
        longest_unread_at: Validation of the usable checkpoint that was not read for longest.
        overdue: Usable ones not read within `scrub_every_s`; `MAX_OVERDUE` means so many or more.
        retries: Verdicts that the service asks for again by itself.
        retry_at: When the next of them is due.
    """

    row: StoreRow
    state: StoreState
    queued: int
    oldest_at: datetime | None
    running: int
    workers: int
    counts: dict[str, int]
    last_valid: Row[Any] | None
    last_bad: Row[Any] | None
    bytes_per_s: float | None
    longest_unread_at: datetime | None
    overdue: int
    retries: int
    retry_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """A page of stores, by name; `next` names the last one where there are more."""

    now: datetime
    items: Sequence[StoreHealth]
    next: str | None


def show_stores(services: Services, *, project_id: int, after_name: str | None, limit: int) -> Stores:
    """Return the stores that are allowed now.

    Cost: bounded for each store, but for counts of what waits.
    """
    with services.database.read() as tx:
        found = list_stores(tx, project_id, after_name=after_name, limit=limit + 1)
        shown = found[:limit]
        heard = read_heard_workers(tx, within_s=services.settings.worker_heard_within_s)
        own = [worker for worker in heard if worker.project_id in (None, project_id)]
        items = _health_of(tx, shown, own)
        return Stores(now=tx.now, items=items, next=shown[-1].name if len(found) > limit else None)


def _health_of(
    tx: Transaction, stores: Sequence[StoreRow], workers: Sequence[HeardWorker]
) -> list[StoreHealth]:
    ids = [store.id for store in stores]
    opened = {(row.store_id, row.state): row for row in rows.open_by_store(tx, ids)}
    retries = rows.retries_by_store(tx, ids)
    found = []
    for store in stores:
        queued = opened.get((store.id, ValidationState.QUEUED.value))
        running = opened.get((store.id, ValidationState.RUNNING.value))
        last = rows.last_verdicts(tx, store.id, limit=LAST_VERDICTS)
        mapping = sum(not worker.stores.isdisjoint({store.name, EVERY_STORE}) for worker in workers)
        retried = retries.get(store.id)
        found.append(
            StoreHealth(
                row=store,
                state=_state(last, waits=queued is not None, workers=mapping),
                queued=0 if queued is None else queued.number,
                oldest_at=None if queued is None else queued.oldest,
                running=0 if running is None else running.number,
                workers=mapping,
                counts={each.value: sum(row.verdict == each for row in last) for each in Verdict},
                last_valid=next((row for row in last if row.verdict == Verdict.VALID), None),
                last_bad=next((row for row in last if row.verdict != Verdict.VALID), None),
                bytes_per_s=_rate(last),
                longest_unread_at=rows.longest_unread_at(tx, store.id),
                overdue=_overdue(tx, store),
                retries=0 if retried is None else retried.number,
                retry_at=None if retried is None else retried.next_at,
            )
        )
    return found


def _state(last: Sequence[Row[Any]], *, waits: bool, workers: int) -> StoreState:
    newest = last[:_FAILING_IN_A_ROW]
    if newest and all(row.verdict == Verdict.UNKNOWN and row.is_retryable for row in newest):
        return StoreState.FAILING
    if waits and not workers:
        return StoreState.NO_WORKER
    return StoreState.WORKING if last or waits else StoreState.UNUSED


def _rate(last: Sequence[Row[Any]]) -> float | None:
    seconds = sum(row.seconds_reading for row in last)
    total = sum(row.bytes_read for row in last)
    return total / seconds if seconds > 0 and total else None


def _overdue(tx: Transaction, store: StoreRow) -> int:
    if store.scrub_every_s is None:
        return 0
    since = tx.now - timedelta(seconds=store.scrub_every_s)
    return rows.count_unread_since(tx, store.id, since, at_most=MAX_OVERDUE)

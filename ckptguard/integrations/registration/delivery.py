"""One entry sent, or the reason why not (yet)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from ckptguard.client.client import Client
from ckptguard.errors import (
    CkptGuardError,
    ConflictError,
    FormatError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    ObjectNotFoundError,
)
from ckptguard.integrations.registration.entry import Entry, digest_of
from ckptguard.storage.open_url import open_location
from ckptguard.storage.protocol import read_whole
from ckptguard.storage.retry import RetryPolicy

GONE_AFTER: Final = timedelta(days=1)
"""A checkpoint whose manifest is not there for so long was deleted, or never got its final name."""
_BRANCH_PROBLEM: Final = "/branch: "
_ONE_TRY: Final = RetryPolicy(attempts=1, timeout_s=10.0)
_REFUSALS: Final = (ConflictError, InvalidRequestError, NotFoundError, FormatError)


class Outcome(StrEnum):
    """What became of one entry."""

    SENT = "sent"
    REFUSED = "refused"  # for good: nothing that time changes
    AWAY = "away"  # no answer, or none for this token; so it would be with the next entry
    WAITING = "waiting"  # the checkpoint is not where it will be, or cannot be looked at
    FOREIGN = "foreign"  # for another service


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of one entry, and why, for a person."""

    outcome: Outcome
    reason: str = ""


def deliver(entry: Entry, client: Client, *, now: datetime, is_own: bool) -> Delivery:
    """Send one entry, if what it says still holds.

    An old entry must not be sent once another save stands at its place: the service would take it
    for the newer one, and supersede what is there.

    Args:
        entry: What to send.
        client: Of the service that was found.
        now: The time.
        is_own: This process wrote the manifest a moment ago, and nobody was to move it.
    """
    if not entry.is_for(url=client.address.url, project=client.address.project):
        return Delivery(outcome=Outcome.FOREIGN, reason=f"it is for {entry.service}")
    hindrance = None if is_own else _hindrance(entry, now=now)
    if hindrance is not None:
        return hindrance
    try:
        _send(entry, client)
    except _REFUSALS as error:
        return Delivery(outcome=Outcome.REFUSED, reason=f"{error.code}: {error}")
    except CkptGuardError as error:
        return Delivery(outcome=Outcome.AWAY, reason=f"{error.code}: {error}")
    return Delivery(outcome=Outcome.SENT)


def _send(entry: Entry, client: Client) -> None:
    """Send; in the run's branch where the service has lost the job's, since its database was put back."""
    try:
        client.send_once(entry.call)
    except InvalidRequestError as error:
        is_branch_gone = any(problem.startswith(_BRANCH_PROBLEM) for problem in error.problems)
        if not (entry.is_branch_inherited and is_branch_gone):
            raise
        client.send_once(entry.in_any_branch.call)


def _hindrance(entry: Entry, *, now: datetime) -> Delivery | None:
    try:
        found = _manifest_there(entry)
    except (ObjectNotFoundError, LimitExceededError) as error:
        is_gone = isinstance(error, LimitExceededError) or now - entry.saved_at > GONE_AFTER
        if is_gone:
            reason = f"not at {entry.manifest_at} since {entry.saved_at:%Y-%m-%d %H:%M} UTC"
            return Delivery(outcome=Outcome.REFUSED, reason=reason)
        return Delivery(outcome=Outcome.WAITING, reason=f"not there yet: {entry.manifest_at}")
    except CkptGuardError as error:
        return Delivery(outcome=Outcome.WAITING, reason=f"{entry.manifest_at} cannot be looked at: {error}")
    if digest_of(found) != entry.manifest_digest:
        return Delivery(
            outcome=Outcome.REFUSED, reason=f"another save stands at {entry.manifest_at} since then"
        )
    return None


def _manifest_there(entry: Entry) -> bytes:
    folder, _, name = entry.manifest_at.rpartition("/")
    store, prefix = open_location(folder, retry=_ONE_TRY)
    path = f"{prefix}/{name}" if prefix else name
    return read_whole(store, path, max_bytes=entry.manifest_bytes)

"""Every request of an operator (docs/service.md): pure, shared by both clients."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from ckptguard.client.answers import (
    Checkpoint,
    CheckpointDetail,
    Event,
    FileSeen,
    Finding,
    NewToken,
    Note,
    Run,
    Store,
    TokenRow,
    Validation,
    Worker,
    read_checkpoint_detail,
)
from ckptguard.client.call import Call, Page, get, get_page, no_answer, post, segment
from ckptguard.client.decode import time_text
from ckptguard.model.policy import Depth
from ckptguard.model.service import Hold, Scope

MAX_PAGE: Final = 500
"""Most items that the service puts on one page."""
MAX_FILES_PAGE: Final = 20_000
"""Most files of an evidence that it puts on one page."""


def runs(*, limit: int | None = None) -> Call[Page[Run]]:
    """List the runs of the project."""
    return get_page("/v1/runs", Run, limit=limit)


def run(name: str) -> Call[Run]:
    """Look at one run."""
    return get(f"/v1/runs/{segment(name)}", Run)


def checkpoints(  # noqa: PLR0913 - one parameter for each filter
    *,
    run: str | None = None,
    verdict: str | None = None,
    assurance: str | None = None,
    lifecycle: str | None = None,
    hold: str | None = None,
    state: str | None = None,
    step: int | None = None,
    min_step: int | None = None,
    max_step: int | None = None,
    newer_than: datetime | None = None,
    older_than: datetime | None = None,
    limit: int | None = None,
) -> Call[Page[Checkpoint]]:
    """List checkpoints, newest first; steps and times are inclusive where the service says so."""
    return get_page(
        "/v1/checkpoints",
        Checkpoint,
        run=run,
        verdict=verdict,
        assurance=assurance,
        lifecycle=lifecycle,
        hold=hold,
        state=state,
        step=step,
        min_step=min_step,
        max_step=max_step,
        newer_than=None if newer_than is None else time_text(newer_than),
        older_than=None if older_than is None else time_text(older_than),
        limit=limit,
    )


def checkpoint(checkpoint_id: int) -> Call[CheckpointDetail]:
    """Look at one checkpoint, with its verdict, holds and history."""
    return Call(method="GET", path=f"/v1/checkpoints/{checkpoint_id}", read=read_checkpoint_detail)


def manifest(checkpoint_id: int, *, part: str | None = None) -> Call[Any]:
    """Read a manifest as it was registered, as JSON values."""
    return get(f"/v1/checkpoints/{checkpoint_id}/manifest", object, part=part)


def validation(validation_id: int) -> Call[Validation]:
    """Look at one validation."""
    return get(f"/v1/validations/{validation_id}", Validation)


def findings(validation_id: int, *, limit: int | None = MAX_PAGE) -> Call[Page[Finding]]:
    """List what a validation found."""
    return get_page(f"/v1/validations/{validation_id}/findings", Finding, limit=limit)


def evidence(validation_id: int, *, limit: int | None = MAX_FILES_PAGE) -> Call[Page[FileSeen]]:
    """List the files that a verdict binds to."""
    return get_page(f"/v1/validations/{validation_id}/evidence", FileSeen, limit=limit)


def request_validation(
    checkpoint_id: int, *, depth: Depth | None = None, reason: str | None = None
) -> Call[Validation]:
    """Ask for a verdict; where one is open already, it is that one."""
    body = {"depth": depth, "reason": reason}
    return post(f"/v1/checkpoints/{checkpoint_id}/validations", Validation, body)


def hold(checkpoint_id: int, *, hold: Hold, reason: str) -> Call[Checkpoint]:
    """Pin or quarantine a checkpoint.

    Raises:
        ValueError: A hold that only the service gives.
    """
    verbs = {Hold.PINNED: "pin", Hold.QUARANTINED: "quarantine"}
    if hold not in verbs:
        msg = f"nobody sets {hold}: restarts that fail do"
        raise ValueError(msg)
    return post(f"/v1/checkpoints/{checkpoint_id}/{verbs[hold]}", Checkpoint, {"reason": reason})


def release(checkpoint_id: int, *, reason: str, hold: Hold | None = None) -> Call[Checkpoint]:
    """Lift a hold; None: all of them."""
    return post(f"/v1/checkpoints/{checkpoint_id}/release", Checkpoint, {"reason": reason, "hold": hold})


def mark_deleted(checkpoint_id: int, *, reason: str) -> Call[Checkpoint]:
    """Say that the bytes of a checkpoint are gone."""
    return post(f"/v1/checkpoints/{checkpoint_id}/deleted", Checkpoint, {"reason": reason})


def note(checkpoint_id: int, *, text: str) -> Call[Note]:
    """Write down what a person knows about a checkpoint; it changes nothing that a launcher gets."""
    return post(f"/v1/checkpoints/{checkpoint_id}/notes", Note, {"text": text})


def events(
    *,
    run: str | None = None,
    checkpoint: int | None = None,
    kind: str | None = None,
    limit: int | None = None,
) -> Call[Page[Event]]:
    """List the audit, newest first."""
    return get_page("/v1/events", Event, run=run, checkpoint=checkpoint, kind=kind, limit=limit)


def workers(*, limit: int | None = None) -> Call[Page[Worker]]:
    """List the workers."""
    return get_page("/v1/workers", Worker, limit=limit)


def stores(*, limit: int | None = None) -> Call[Page[Store]]:
    """List the stores of the project."""
    return get_page("/v1/stores", Store, limit=limit)


def tokens(*, limit: int | None = None) -> Call[Page[TokenRow]]:
    """List tokens, without their secrets."""
    return get_page("/v1/tokens", TokenRow, limit=limit)


def create_token(
    name: str, *, scopes: Sequence[Scope], project: str | None = None, expires_in_s: float | None = None
) -> Call[NewToken]:
    """Make a token; its secret is in this answer only, so the request is never made twice."""
    body = {"name": name, "scopes": list(scopes), "project": project, "expires_in_s": expires_in_s}
    return post("/v1/tokens", NewToken, body, is_repeatable=False)


def revoke_token(token_id: int) -> Call[None]:
    """End a token."""
    return Call(method="DELETE", path=f"/v1/tokens/{token_id}", read=no_answer)


def readiness() -> Call[Any]:
    """Ask whether the service can work: its database, above all."""
    return get("/readyz", object)

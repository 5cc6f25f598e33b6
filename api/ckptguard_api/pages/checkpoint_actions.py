"""What an operator does about a checkpoint: each a form, with a reason, in the audit."""

from typing import Final

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from ckptguard.errors import InvalidRequestError
from ckptguard.model.policy import Depth
from ckptguard.model.service import Hold
from ckptguard_api.domain.reasons import checked_reason
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import AdminVisitDep, Visit
from ckptguard_api.routes.answers import RowId
from ckptguard_api.use_cases.effects import Effect, effect_of_hiding, effect_of_release
from ckptguard_api.use_cases.holds import Releasable, hold_checkpoint, release_checkpoint
from ckptguard_api.use_cases.notes import note_checkpoint
from ckptguard_api.use_cases.revalidate import request_validation

router = APIRouter(prefix=f"{IN_PROJECT}/checkpoints/{{checkpoint_id}}", include_in_schema=False)

_SEE_OTHER: Final = 303


@router.post("/revalidate")
def revalidate_route(checkpoint_id: RowId, visit: AdminVisitDep) -> Response:
    """Ask for a new verdict."""
    try:
        depth = Depth(visit.form.get("depth", Depth.LOAD))
    except ValueError as error:
        msg = "no such depth"
        raise InvalidRequestError(msg) from error
    request_validation(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        depth=depth,
        reason=_reason(visit),
        actor=visit.actor,
    )
    return _done(visit, checkpoint_id, "revalidate")


@router.post("/pin")
def pin_route(checkpoint_id: RowId, visit: AdminVisitDep) -> Response:
    """Keep a checkpoint from being marked as deleted."""
    _hold(visit, checkpoint_id, Hold.PINNED)
    return _done(visit, checkpoint_id, "pin")


@router.post("/quarantine")
def quarantine_route(checkpoint_id: RowId, visit: AdminVisitDep) -> Response:
    """Say what a quarantine changes; told so again, keep launchers from the checkpoint."""
    reason = _reason(visit)
    effect = effect_of_hiding(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id)
    if not _is_confirmed(visit, effect):
        return _ask(visit, effect, verb="quarantine", what=None, reason=reason)
    _hold(visit, checkpoint_id, Hold.QUARANTINED)
    return _done(visit, checkpoint_id, "quarantine")


@router.post("/release")
def release_route(checkpoint_id: RowId, visit: AdminVisitDep) -> Response:
    """Say what a release changes; told so again, lift the hold. A pin hides nothing: it is lifted at once."""
    what, reason = _releasable(visit), _reason(visit)
    effect = effect_of_release(
        visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id, what=what
    )
    if what is not Releasable.PINNED and not _is_confirmed(visit, effect):
        return _ask(visit, effect, verb="release", what=what, reason=reason)
    release_checkpoint(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        what=what,
        reason=reason,
        actor=visit.actor,
    )
    return _done(visit, checkpoint_id, "release")


@router.post("/note")
def note_route(checkpoint_id: RowId, visit: AdminVisitDep) -> Response:
    """Write down what is known about a checkpoint."""
    note_checkpoint(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        text=visit.form.get("text", ""),
        actor=visit.actor,
    )
    return _done(visit, checkpoint_id, "note")


def _hold(visit: Visit, checkpoint_id: int, hold: Hold) -> None:
    hold_checkpoint(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        hold=hold,
        reason=_reason(visit),
        actor=visit.actor,
    )


def _reason(visit: Visit) -> str:
    return checked_reason(visit.form.get("reason", ""))


def _releasable(visit: Visit) -> Releasable:
    try:
        return Releasable(visit.form.get("what", ""))
    except ValueError as error:
        msg = "say what to release: pinned, quarantined, suspect or damage"
        raise InvalidRequestError(msg) from error


def _is_confirmed(visit: Visit, effect: Effect) -> bool:
    """Say whether what was confirmed is what would happen now."""
    return visit.form.get("confirmed") == effect.digest


def _ask(visit: Visit, effect: Effect, *, verb: str, what: Releasable | None, reason: str) -> Response:
    return visit.page(
        "checkpoint_confirm.html",
        section="runs",
        effect=effect,
        checkpoint=effect.checkpoint,
        verb=verb,
        what=what,
        reason=reason,
        is_outdated="confirmed" in visit.form,
    )


def _done(visit: Visit, checkpoint_id: int, verb: str) -> Response:
    path = visit.path("checkpoints", checkpoint_id)
    return RedirectResponse(f"{path}?done={verb}", status_code=_SEE_OTHER)

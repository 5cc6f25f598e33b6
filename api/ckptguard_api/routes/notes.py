"""What a person writes about a checkpoint."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ckptguard_api.routes.answers import RowId
from ckptguard_api.routes.dependencies import AdminDep, ServicesDep
from ckptguard_api.use_cases.notes import MAX_NOTE_CHARS, note_checkpoint

router = APIRouter(prefix="/v1/checkpoints/{checkpoint_id}", tags=["notes"])


class NoteRequest(BaseModel):
    """A text of several lines."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE_CHARS)]


class NoteAnswer(BaseModel):
    """A note; `id` is that of the event `checkpoint.noted`."""

    id: int
    checkpoint_id: int
    at: datetime
    actor: str
    text: str


@router.post("/notes", status_code=HTTPStatus.CREATED)
def note_route(
    checkpoint_id: RowId, body: NoteRequest, caller: AdminDep, services: ServicesDep
) -> NoteAnswer:
    """Write a note about a checkpoint; it changes nothing that a launcher gets."""
    row = note_checkpoint(
        services,
        project_id=caller.project_id,
        checkpoint_id=checkpoint_id,
        text=body.text,
        actor=caller.actor,
    )
    return NoteAnswer(
        id=row.id, checkpoint_id=row.checkpoint_id, at=row.at, actor=row.actor, text=row.data["text"]
    )

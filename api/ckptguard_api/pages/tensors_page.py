"""The tensors of a checkpoint, found by name."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from ckptguard.model.tensor_list import MAX_TENSORS
from ckptguard_api.pages.checkpoint_page import ValidationId
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.routes.answers import RowId
from ckptguard_api.use_cases.checkpoint_tensors import list_tensors

router = APIRouter(prefix=f"{IN_PROJECT}/checkpoints/{{checkpoint_id}}", include_in_schema=False)

_ROWS: Final = 100
_MAX_FQN_CHARS: Final = 1024


@router.get("/tensors")
def tensors_route(
    visit: VisitDep,
    checkpoint_id: RowId,
    fqn: Annotated[str, Query(max_length=_MAX_FQN_CHARS)] = "",
    start: Annotated[int, Query(ge=0, le=MAX_TENSORS)] = 0,
    validation: ValidationId = None,
) -> Response:
    """Show the tensors whose names contain a text."""
    found = list_tensors(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        validation_id=validation,
        fqn=fqn,
        start=start,
        limit=_ROWS,
    )
    return visit.page(
        "tensors_part.html" if visit.is_fragment else "checkpoint_tensors.html",
        section="runs",
        tab="tensors",
        row=found.row,
        found=found,
        fqn=fqn,
        start=start,
        validation=validation,
    )

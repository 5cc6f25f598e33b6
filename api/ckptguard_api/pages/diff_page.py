"""How a checkpoint differs from another one of its run."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.routes.answers import RowId
from ckptguard_api.use_cases.checkpoint_diff import diff_checkpoint

router = APIRouter(prefix=f"{IN_PROJECT}/checkpoints/{{checkpoint_id}}", include_in_schema=False)

_ROWS: Final = 100

Places = Annotated[str, Query(pattern=r"^[0-9]{1,8}-[0-9]{1,8}$")]


@router.get("/diff")
def diff_route(
    visit: VisitDep,
    checkpoint_id: RowId,
    other: Annotated[int | None, Query(alias="with", ge=1, le=2**63 - 1)] = None,
    tensors: Places = "0-0",
    files: Places = "0-0",
) -> Response:
    """Hold a checkpoint against another one; the newest VALID before it where none is named."""
    diff = diff_checkpoint(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        other_id=other,
        tensors_from=_places(tensors),
        files_from=_places(files),
        limit=_ROWS,
    )
    return visit.page(
        "checkpoint_diff.html",
        section="runs",
        tab="diff",
        row=diff.row,
        diff=diff,
        tensors_from=tensors,
        files_from=files,
    )


def _places(text: str) -> tuple[int, int]:
    before, _, after = text.partition("-")
    return int(before), int(after)

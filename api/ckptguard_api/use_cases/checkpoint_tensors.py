"""The tensors of a checkpoint as a verdict saw them, found by name."""

from dataclasses import dataclass

from ckptguard_api.domain.tensor_lists import TensorPage, find_tensors
from ckptguard_api.repositories import history
from ckptguard_api.repositories.checkpoint_list import CheckpointRow, find_checkpoint
from ckptguard_api.services import Services
from ckptguard_api.use_cases.checkpoint_files import chosen_validation


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTensors:
    """A page of tensors, and whose they are.

    Args:
        row: Of the checkpoint.
        validation_id: Whose verdict saw them; None: there is no verdict yet.
        num_tensors: That the verdict counted; None: there is none.
        num_listed: Of which a list was kept; None: none was.
        page: Those that were asked for.
    """

    row: CheckpointRow
    validation_id: int | None
    num_tensors: int | None
    num_listed: int | None
    page: TensorPage


def list_tensors(
    services: Services,
    *,
    project_id: int,
    checkpoint_id: int,
    validation_id: int | None = None,
    fqn: str,
    start: int,
    limit: int,
) -> FoundTensors:
    """Return tensors whose names contain a text, in the order of names.

    Args:
        services: Of this process.
        project_id: Whose.
        checkpoint_id: Which.
        validation_id: Whose verdict; None: the one in force, else the last.
        fqn: Part of a name; "": all.
        start: Place in the list.
        limit: How many at most.

    Raises:
        NotFoundError: There is no such checkpoint, or it has no such validation.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        chosen = chosen_validation(tx, row, validation_id)
        judged = None if chosen is None else history.find_validation(tx, project_id, chosen)
        kept = None if chosen is None else history.tensor_list_of(tx, chosen)
    empty = TensorPage(entries=(), next=None)
    return FoundTensors(
        row=row,
        validation_id=chosen,
        num_tensors=None if judged is None or judged.totals is None else judged.totals.get("tensors"),
        num_listed=None if kept is None else kept.num_tensors,
        page=empty if kept is None else find_tensors(kept.body, fqn=fqn, start=start, limit=limit),
    )

"""How a checkpoint differs from another one of its run."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Row

from ckptguard.errors import InvalidRequestError
from ckptguard_api.database import Transaction
from ckptguard_api.domain.checkpoint_diff import (
    DiffPage,
    FileChange,
    TensorChange,
    diff_files,
    diff_tensors,
)
from ckptguard_api.domain.evidence_files import evidence_files
from ckptguard_api.domain.tensor_lists import tensor_lines
from ckptguard_api.repositories import history, lineage
from ckptguard_api.repositories.checkpoint_list import CheckpointRow, find_checkpoint
from ckptguard_api.repositories.history import ValidationRow
from ckptguard_api.services import Services
from ckptguard_api.use_cases.checkpoint_files import chosen_validation

NEIGHBOURS: Final = 25
"""Checkpoints before, and after, that are offered to compare with."""

_Change = TypeVar("_Change")
_Places = tuple[int, int]
_START: Final[_Places] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffSide:
    """One of both checkpoints.

    Args:
        row: Of the checkpoint.
        judged: The validation whose verdict is shown; None: there is none.
        files: Its evidence; None: there is none.
        tensors: Its list of tensors; None: none was kept.
    """

    row: CheckpointRow
    judged: ValidationRow | None
    files: Row[Any] | None
    tensors: Row[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDiff:
    """Two checkpoints side by side.

    Args:
        row: Of the checkpoint.
        choices: Others of the run around it, newest first, it itself left out.
        before: The one that it is held against; None: there is none that was VALID, and none was named.
        after: The checkpoint itself; None exactly where `before` is.
        tensors: Differences; None: one side has no list of tensors.
        files: Differences; None: one side has no evidence.
    """

    row: CheckpointRow
    choices: Sequence[Row[Any]]
    before: DiffSide | None = None
    after: DiffSide | None = None
    tensors: DiffPage[TensorChange] | None = None
    files: DiffPage[FileChange] | None = None


def diff_checkpoint(
    services: Services,
    *,
    project_id: int,
    checkpoint_id: int,
    other_id: int | None,
    tensors_from: _Places = _START,
    files_from: _Places = _START,
    limit: int,
) -> CheckpointDiff:
    """Hold a checkpoint against another one.

    Args:
        services: Of this process.
        project_id: Whose.
        checkpoint_id: The later one.
        other_id: The earlier one; None: the newest VALID before it.
        tensors_from: Places in both lists of tensors where the page starts.
        files_from: The same of files.
        limit: Differences of each kind at most.

    Raises:
        NotFoundError: One of them is not there.
        InvalidRequestError: They are not of one run, or are the same.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        around = lineage.neighbours(tx, row, limit=NEIGHBOURS)
        chosen = other_id if other_id is not None else lineage.earlier_valid(tx, row)
        if chosen is None:
            return CheckpointDiff(row=row, choices=around)
        other = find_checkpoint(tx, project_id, chosen)
        _require_comparable(row, other)
        before, after = _side(tx, other), _side(tx, row)
    return CheckpointDiff(
        row=row,
        choices=around,
        before=before,
        after=after,
        tensors=_tensors(before, after, tensors_from, limit),
        files=_files(before, after, files_from, limit),
    )


def _require_comparable(row: CheckpointRow, other: CheckpointRow) -> None:
    if other.run_id != row.run_id:
        msg = "the two checkpoints are of different runs"
        raise InvalidRequestError(msg)
    if other.id == row.id:
        msg = "a checkpoint does not differ from itself; choose another one"
        raise InvalidRequestError(msg)


def _side(tx: Transaction, row: CheckpointRow) -> DiffSide:
    validation_id = chosen_validation(tx, row, None)
    if validation_id is None:
        return DiffSide(row=row, judged=None, files=None, tensors=None)
    return DiffSide(
        row=row,
        judged=history.find_validation(tx, row.project_id, validation_id),
        files=history.evidence_of(tx, validation_id),
        tensors=history.tensor_list_of(tx, validation_id),
    )


def _tensors(before: DiffSide, after: DiffSide, places: _Places, limit: int) -> DiffPage[TensorChange] | None:
    if before.tensors is None or after.tensors is None:
        return None
    old = islice(tensor_lines(before.tensors.body), places[0], None)
    new = islice(tensor_lines(after.tensors.body), places[1], None)
    return _moved(diff_tensors(old, new, limit=limit), places)


def _files(before: DiffSide, after: DiffSide, places: _Places, limit: int) -> DiffPage[FileChange] | None:
    if before.files is None or after.files is None:
        return None
    old = evidence_files(before.files.body, start=places[0])
    new = evidence_files(after.files.body, start=places[1])
    return _moved(diff_files(old, new, limit=limit), places)


def _moved(page: DiffPage[_Change], places: _Places) -> DiffPage[_Change]:
    if page.next is None:
        return page
    following = (places[0] + page.next[0], places[1] + page.next[1])
    return DiffPage(changes=page.changes, counts=page.counts, next=following)

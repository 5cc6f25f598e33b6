"""A checkpoint grows by a part: written, settled once all are there, held against the run's history."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ckptguard.model.service import EventKind, Lifecycle, SupersededBy
from ckptguard_api.database import Transaction
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.registration import DEFAULT_KEEP_ALIVE_S
from ckptguard_api.domain.save import Save, joined_formats
from ckptguard_api.repositories import checkpoints
from ckptguard_api.repositories.checkpoints import CheckpointRow
from ckptguard_api.repositories.parts import add_part, part_names, part_totals
from ckptguard_api.repositories.runs import RunRow, note_step_went_back
from ckptguard_api.use_cases.rollback import go_on_in_branch
from ckptguard_api.use_cases.superseding import Site, branch_of, subject_of


def add_to_checkpoint(
    tx: Transaction, site: Site, save: Save, before: CheckpointRow | None, *, registered_by: str
) -> CheckpointRow:
    """Write a save, or one part of it.

    Args:
        tx: Where.
        site: Locked.
        save: What to write.
        before: What was announced, or the parts before it; None: nothing.
        registered_by: For the audit.

    Raises:
        InvalidRequestError: The run has no such branch.
    """
    branch, is_on_the_way = branch_of(tx, site.run, save.request, before)
    values = _values(save, branch)
    if before is None:
        row = checkpoints.add_checkpoint(tx, {**_key_values(site, save), **values})
    else:
        row = checkpoints.change_checkpoint(tx, before.id, values | _values_of_several(save, before))
    add_part(tx, row.id, save.packed, registered_by=registered_by)
    return _settled(tx, row, is_on_the_way=is_on_the_way)


def hold_against_history(tx: Transaction, run: RunRow, row: CheckpointRow) -> Iterator[Fact]:
    """Notice where a complete save shows that its run is; yield what is to be told.

    The first of a branch shows that the run goes on there. One of an earlier step than was saved before it
    shows that the run was started from there without a word: its saves are of two histories.
    """
    if row.lifecycle != Lifecycle.REGISTERED.value:
        return
    highest = checkpoints.highest_complete(tx, run.id, row.branch, but_id=row.id)
    if highest is None and row.branch == run.branch:
        yield from go_on_in_branch(tx, run)
    if highest is None or run.step_went_back_at is not None:
        return
    if row.step >= highest.step or row.created_at <= highest.created_at:
        return
    note_step_went_back(tx, run.id)
    data = {"step": row.step, "highest_step": highest.step, "highest_checkpoint": highest.id}
    yield Fact(kind=EventKind.RUN_STEP_WENT_BACK, about=(subject_of(row),), data=data)


def _values(save: Save, branch: int) -> dict[str, Any]:
    described = save.request.described
    return {
        "branch": branch,
        "save_id": save.save_id,
        "format": described.format if save.packed is None else save.packed.header["format"],
        "created_at": save.created_at,
        "num_files": described.num_files,
        "bytes_total": described.bytes_total,
        "expected_parts": list(save.expected_parts),
    }


def _values_of_several(save: Save, before: CheckpointRow) -> dict[str, Any]:
    if save.packed is None or not before.expected_parts:
        return {}
    return {
        "format": joined_formats(before.format, save.packed.header["format"]),
        "created_at": max(before.created_at, save.created_at),
    }


def _key_values(site: Site, save: Save) -> dict[str, Any]:
    return {
        "project_id": site.run.project_id,
        "run_id": site.run.id,
        "step": save.request.step,
        "store_id": site.location.store_id,
        "path": site.location.path,
        "location": site.location.url,
        "lifecycle": Lifecycle.ANNOUNCED.value,
    }


def _settled(tx: Transaction, row: CheckpointRow, *, is_on_the_way: bool) -> CheckpointRow:
    """Say where the checkpoint stands, now that one more of its parts is there."""
    is_complete = not set(row.expected_parts) - set(part_names(tx, row.id))
    totals = part_totals(tx, row.id)
    values: dict[str, Any] = {
        "lifecycle": (Lifecycle.REGISTERED if is_complete else Lifecycle.ANNOUNCED).value,
        "superseded_by": None,
        "gone_at": None,
        "registered_at": tx.now if is_complete else None,
        "keep_alive_until": None if is_complete else tx.now + timedelta(seconds=DEFAULT_KEEP_ALIVE_S),
    }
    if totals.num_files is not None:
        values |= {"num_files": totals.num_files, "bytes_total": totals.bytes_total}
    if not is_on_the_way:
        rolled_back = SupersededBy.ROLLED_BACK.value
        values |= {"lifecycle": Lifecycle.SUPERSEDED.value, "superseded_by": rolled_back}
        values |= {"gone_at": tx.now, "keep_alive_until": None}
    return checkpoints.change_checkpoint(tx, row.id, values)

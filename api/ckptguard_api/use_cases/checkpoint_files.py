"""The files of a checkpoint as a verdict saw them: a map of all, details of some, the grave ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Row

from ckptguard.errors import NotFoundError
from ckptguard_api.database import Transaction
from ckptguard_api.domain.file_map import (
    GRAVE,
    Fault,
    Faults,
    FileCell,
    FileMap,
    FileState,
    cells_at,
    map_files,
)
from ckptguard_api.repositories import history
from ckptguard_api.repositories.checkpoint_list import CheckpointRow, find_checkpoint
from ckptguard_api.repositories.file_faults import faults_of
from ckptguard_api.repositories.verdicts import find_verdict
from ckptguard_api.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFiles:
    """A map, and whose it is.

    Args:
        row: Of the checkpoint.
        validation_id: Whose verdict it shows; None: there is no verdict yet.
        map: Of its files.
    """

    row: CheckpointRow
    validation_id: int | None
    map: FileMap


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPage:
    """Some files of a map.

    Args:
        mapped: The map.
        cells: In its order.
        next: Place in the map where the next page starts; None: it ended.
    """

    mapped: MappedFiles
    cells: tuple[FileCell, ...]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    row: CheckpointRow
    validation_id: int | None
    packed: Row[Any] | None
    faults: Faults

    @property
    def body(self) -> bytes | None:
        return None if self.packed is None else self.packed.body

    def cells(self, missing: Sequence[str], places: Sequence[int]) -> tuple[FileCell, ...]:
        num_files = 0 if self.packed is None else self.packed.num_files
        return tuple(cells_at(self.body, self.faults, places, num_files=num_files, missing=missing))


def show_file_map(
    services: Services, *, project_id: int, checkpoint_id: int, validation_id: int | None
) -> MappedFiles:
    """Return the map of a verdict.

    Args:
        services: Of this process.
        project_id: Whose.
        checkpoint_id: Which.
        validation_id: Whose verdict; None: the one in force, else the last.

    Raises:
        NotFoundError: There is no such checkpoint, or it has no such validation.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        chosen = chosen_validation(tx, row, validation_id)
        kept = None if chosen is None else services.file_maps.find(chosen)
        if kept is not None:
            return MappedFiles(row=row, validation_id=chosen, map=kept)
        found = _evidence(tx, row, chosen)
    return _mapped(services, found)


def list_cells(
    services: Services,
    *,
    project_id: int,
    checkpoint_id: int,
    validation_id: int | None,
    start: int,
    limit: int,
    state: FileState | None = None,
) -> CellPage:
    """Return files of a map from a place on.

    Args:
        services: Of this process.
        project_id: Whose.
        checkpoint_id: Which.
        validation_id: As for `show_file_map`.
        start: Place in the map, from 0.
        limit: How many at most.
        state: Only those; None: all.

    Raises:
        NotFoundError: As `show_file_map`.

    Cost: of files passed over, none is parsed; the map is made once (`KeptMaps`).
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        found = _evidence(tx, row, chosen_validation(tx, row, validation_id))
    mapped = _mapped(services, found)
    places = _places(mapped.map.states, state, start=start, limit=limit + 1)
    cells = found.cells(mapped.map.missing, places[:limit])
    return CellPage(mapped=mapped, cells=cells, next=places[limit] if len(places) > limit else None)


def list_grave_files(
    services: Services, *, project_id: int, checkpoint_id: int, limit: int
) -> tuple[tuple[str, Fault], ...]:
    """Return files that are missing, faulty or in doubt by the verdict in force, else the last one.

    Raises:
        NotFoundError: There is no such checkpoint.

    Cost: of its findings; no evidence is unpacked.
    """
    with services.database.read() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        chosen = chosen_validation(tx, row, None)
        faults = {} if chosen is None else faults_of(tx, chosen).by_path
    grave = ((path, fault) for path, fault in faults.items() if fault.state in GRAVE)
    return tuple(islice(grave, limit))


def _places(states: str, state: FileState | None, *, start: int, limit: int) -> Sequence[int]:
    if state is None:
        return range(start, min(start + limit, len(states)))
    found = (place for place in range(start, len(states)) if states[place] == state.value)
    return tuple(islice(found, limit))


def _evidence(tx: Transaction, row: CheckpointRow, chosen: int | None) -> _Evidence:
    if chosen is None:
        return _Evidence(row=row, validation_id=None, packed=None, faults=Faults(by_path={}))
    packed = history.evidence_of(tx, chosen)
    return _Evidence(row=row, validation_id=chosen, packed=packed, faults=faults_of(tx, chosen))


def _mapped(services: Services, found: _Evidence) -> MappedFiles:
    chosen = found.validation_id
    made = None if chosen is None else services.file_maps.find(chosen)
    if made is None:
        made = map_files(found.body, found.faults)
        if chosen is not None and found.packed is not None:  # else the verdict may be still to come
            services.file_maps.put(chosen, made)
    return MappedFiles(row=found.row, validation_id=chosen, map=made)


def chosen_validation(tx: Transaction, row: CheckpointRow, wanted: int | None) -> int | None:
    """Return whose verdict is shown: the one asked for, else the one in force, else the last.

    Returns:
        The id; None: no verdict is stored.

    Raises:
        NotFoundError: The one asked for is none of this checkpoint.
    """
    if wanted is not None:
        found = history.find_validation(tx, row.project_id, wanted)
        if found.checkpoint_id != row.id:
            msg = "no such validation of this checkpoint"
            raise NotFoundError(msg)
        return wanted
    in_force: int | None = row.verdict_validation_id
    if in_force is not None and find_verdict(tx, in_force) is not None:
        return in_force
    return history.last_judged(tx, row.id)

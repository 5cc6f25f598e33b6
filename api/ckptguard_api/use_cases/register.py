"""Register a save: from here on the service knows it, and finds out whether it is valid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.errors import ConflictError
from ckptguard.model.service import Lifecycle, ValidationReason
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.packed_manifest import pack_manifest
from ckptguard_api.domain.registration import Registration
from ckptguard_api.domain.same_save import content_differences, is_better, place_differences, require_same
from ckptguard_api.domain.save import (
    Save,
    former_note,
    is_gone_for_good,
    is_saved_anew,
    notes_on,
    registered_fact,
    save_of,
)
from ckptguard_api.domain.save_ids import former_save_id, provisional_save_id
from ckptguard_api.leasing.queue import cancel_open, is_wanted, queue_validation
from ckptguard_api.repositories import checkpoints
from ckptguard_api.repositories.checkpoint_list import find_checkpoint
from ckptguard_api.repositories.checkpoints import CheckpointRow
from ckptguard_api.repositories.events import record_facts
from ckptguard_api.repositories.history import ValidationRow, find_validation
from ckptguard_api.repositories.parts import PartRow, find_part, give_manifest, part_totals
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.services import Services
from ckptguard_api.use_cases.growing import add_to_checkpoint, hold_against_history
from ckptguard_api.use_cases.superseding import Site, cancel_superseded, lock_site, subject_of, supersede

_MAX_NOTES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What became of a registration.

    Args:
        checkpoint: As `find_checkpoint` gives it.
        validation: The one asked for last, as `history.find_validation` gives it; None: none was.
        is_new: It was not known before.
        superseded: Ids of checkpoints whose bytes it replaced.
        notes: What the caller may want to know.
    """

    checkpoint: Row[Any]
    validation: ValidationRow | None
    is_new: bool
    superseded: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def register(services: Services, request: Registration, *, project_id: int, actor: Actor) -> Registered:
    """Register a save, or one part of it; the same request again changes nothing.

    A checkpoint whose parts are all there is `registered`, and queued for validation; until then it is
    `announced`. An announcement of the same run, step and location becomes this checkpoint. Every other one
    at the location, above or below it is superseded in the same transaction.

    Raises:
        LocationRefusedError: The location is in no store, or unsafe.
        InvalidRequestError: The branch does not exist.
        TooLargeError: The manifest holds too much beside its files.
        ConflictError: The key (run, step, save id, part) exists with other content or at another location.
    """
    # What takes long is done before the project is locked.
    packed = None if request.manifest is None else pack_manifest(request.manifest)
    with services.database.write() as tx:
        site = lock_site(tx, request, project_id=project_id, own_folders=services.own_folders, actor=actor)
        save = save_of(request, packed, site.location.url, now=tx.now)
        row, former = _find(tx, site, save)
        part = None if row is None else _held_against(tx, row, site, save)
        if row is None or part is None:
            return _add(tx, site, save, row, former, actor=actor)
        if is_better(packed, part):
            return _improve(tx, row, part, save, actor=actor)
        return _repeat(tx, row, save, actor=actor)


def _find(tx: Transaction, site: Site, save: Save) -> tuple[CheckpointRow | None, CheckpointRow | None]:
    """Return what is known of a save, and an earlier save of the same bytes that has its save id until now.

    Known is it under its own key, or as announced at its place.
    """
    find = partial(checkpoints.find_by_key, tx, run_id=site.run.id, step=save.request.step)
    named, announced = find(save_id=save.save_id), find(save_id=provisional_save_id(site.location.url))
    if named is None:
        return announced, None
    told_before = _find_former(named, save, find)
    if told_before is not None:
        return told_before, None
    is_expected = announced is not None and announced.lifecycle == Lifecycle.ANNOUNCED.value
    return (announced, named) if is_saved_anew(named, save, is_expected=is_expected) else (named, None)


def _find_former(
    named: CheckpointRow, save: Save, find: Callable[..., CheckpointRow | None]
) -> CheckpointRow | None:
    """Return the save that a request told of before a later one of the same bytes took its save id."""
    if not (save.is_named_by_content and save.is_dated) or named.created_at == save.created_at:
        return None
    return find(save_id=former_save_id(save.save_id, save.created_at))


def _held_against(tx: Transaction, row: CheckpointRow, site: Site, save: Save) -> PartRow | None:
    """Return the part as it is stored, if it is; nothing stored may say otherwise than the request.

    Raises:
        ConflictError: It does, or the parts before this one are gone.
    """
    part = find_part(tx, row.id, save.part)
    differences = list(place_differences(row, site.location.url))
    if part is not None:
        described = save.request.described
        differences += content_differences(row, part, packed=save.packed, described=described)
    elif row.expected_parts and set(row.expected_parts) != set(save.expected_parts):
        differences.append(f"/manifest/parts: stored {row.expected_parts}, now {list(save.expected_parts)}")
    what = f"run {site.run.name!r}, step {row.step}, save {row.save_id!r}, part {save.part!r}"
    require_same(what=what, differences=differences)
    if part is None and row.expected_parts and is_gone_for_good(row):
        msg = f"{what}: the parts before it are {row.lifecycle}; register a new save with another save id"
        raise ConflictError(msg)
    return part


def _add(
    tx: Transaction,
    site: Site,
    save: Save,
    before: CheckpointRow | None,
    former: CheckpointRow | None,
    *,
    actor: Actor,
) -> Registered:
    if former is not None:
        kept = former_save_id(former.save_id, former.created_at)
        checkpoints.change_checkpoint(tx, former.id, {"save_id": kept})
    row = add_to_checkpoint(tx, site, save, before, registered_by=actor.name)
    gone, superseded = supersede(tx, site, row)
    told = registered_fact(row, save, about=subject_of(row), former=former)
    facts = [*site.facts, superseded, told, *hold_against_history(tx, site.run, row)]
    touch_run(tx, site.run.id)
    record_facts(tx, facts, actor=actor)
    cancel_superseded(tx, gone, actor=actor)
    if _can_be_judged(row, save):
        _queue(tx, row, save, actor=actor)
    notes = () if former is None else (former_note(former),)
    return _answer(tx, row, save, is_new=True, superseded=gone, notes=notes)


def _improve(tx: Transaction, row: CheckpointRow, part: PartRow, save: Save, *, actor: Actor) -> Registered:
    """Hold a part against a manifest that proves more; what was judged without it is judged again."""
    assert save.packed is not None  # noqa: S101 - it is better
    give_manifest(tx, part, save.packed, registered_by=actor.name)
    totals = part_totals(tx, row.id)
    changes = {
        "format": row.format or save.packed.header["format"],
        "num_files": totals.num_files,
        "bytes_total": totals.bytes_total,
    }
    row = checkpoints.change_checkpoint(tx, row.id, changes)
    touch_run(tx, row.run_id)
    record_facts(tx, [registered_fact(row, save, about=subject_of(row))], actor=actor)
    if _can_be_judged(row, save):
        cancel_open(tx, row.id, why="a manifest that proves more came", actor=actor)
        _queue(tx, row, save, actor=actor)
    note = "it was registered before; the manifest given now replaces what it was held against"
    return _answer(tx, row, save, is_new=False, notes=(note,))


def _repeat(tx: Transaction, row: CheckpointRow, save: Save, *, actor: Actor) -> Registered:
    if _can_be_judged(row, save) and checkpoints.newest_validation(tx, row.id) is None:
        _queue(tx, row, save, actor=actor)
        touch_run(tx, row.run_id)
    return _answer(tx, row, save, is_new=False)


def _can_be_judged(row: CheckpointRow, save: Save) -> bool:
    return save.request.is_validated and row.registered_at is not None and is_wanted(row)


def _queue(tx: Transaction, row: CheckpointRow, save: Save, *, actor: Actor) -> None:
    queue_validation(tx, row, reason=ValidationReason.REGISTERED, depth=save.request.depth, actor=actor)


def _answer(
    tx: Transaction,
    row: CheckpointRow,
    save: Save,
    *,
    is_new: bool,
    superseded: Sequence[CheckpointRow] = (),
    notes: tuple[str, ...] = (),
) -> Registered:
    newest = checkpoints.newest_validation(tx, row.id)
    return Registered(
        checkpoint=find_checkpoint(tx, row.project_id, row.id),
        validation=None if newest is None else find_validation(tx, row.project_id, newest.id),
        is_new=is_new,
        superseded=tuple(each.id for each in superseded),
        notes=(*notes, *notes_on(row, save, now=tx.now))[:_MAX_NOTES],
    )

"""A registration whose place is known: everything that is to be stored of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ckptguard.model.manifest import portability_notes
from ckptguard.model.service import EventKind, Lifecycle, SupersededBy
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.packed_manifest import PackedManifest
from ckptguard_api.domain.registration import Registration
from ckptguard_api.domain.save_ids import derived_save_id
from ckptguard_api.domain.subject import Subject

_CLOCK_SLACK: Final = timedelta(minutes=5)
_GONE: Final = (Lifecycle.SUPERSEDED.value, Lifecycle.DELETED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """What a request says of a save, or of one part of it.

    Args:
        request: As sent.
        packed: Its manifest; None: there is none.
        save_id: Given, the manifest's, or derived.
        part: Folder in the checkpoint; "" where the save has one part.
        expected_parts: All parts, this one too.
        created_at: As the writer says; else when it was registered.
    """

    request: Registration
    packed: PackedManifest | None
    save_id: str
    part: str
    expected_parts: tuple[str, ...]
    created_at: datetime


def save_of(request: Registration, packed: PackedManifest | None, location: str, *, now: datetime) -> Save:
    """Return what a request says, at this location."""
    manifest = request.manifest
    created_at = request.described.created_at if manifest is None else manifest.created_at
    save_id = request.save_id if manifest is None else manifest.save_id
    if save_id is None:
        assert created_at is not None  # noqa: S101 - a rule of Registration
        save_id = derived_save_id(location, created_at)
    part = "" if packed is None else packed.part
    return Save(
        request=request,
        packed=packed,
        save_id=save_id,
        part=part,
        expected_parts=(manifest.parts if manifest is not None else ()) or (part,),
        created_at=created_at or now,
    )


def is_gone_for_good(row: Any) -> bool:  # noqa: ANN401 - a row of `checkpoints`
    """Say whether the bytes of a checkpoint are no longer there: rewritten or deleted."""
    return row.lifecycle in _GONE and row.superseded_by != SupersededBy.ROLLED_BACK.value


def joined_formats(*formats: str | None) -> str | None:
    """Return the formats of several parts as one, `a+b`."""
    named = {part for each in formats if each is not None for part in each.split("+")}
    return "+".join(sorted(named)) or None


def registered_fact(row: Any, save: Save, *, about: Subject) -> Fact:  # noqa: ANN401 - a row of `checkpoints`
    """Return what the audit is told; a save of which parts are missing is announced until they come."""
    is_complete = row.registered_at is not None
    data = {
        "step": row.step,
        "branch": row.branch,
        "save_id": row.save_id,
        "location": row.location,
        "part": save.part,
        "identity": None if save.packed is None else save.packed.identity,
        "num_files": row.num_files,
        "bytes_total": row.bytes_total,
    }
    kind = EventKind.CHECKPOINT_REGISTERED if is_complete else EventKind.CHECKPOINT_ANNOUNCED
    return Fact(kind=kind, about=(about,), data=data)


def notes_on(row: Any, save: Save, *, now: datetime) -> Iterator[str]:  # noqa: ANN401 - a row of `checkpoints`
    """Yield what the caller may want to know of a registration that went well."""
    if row.lifecycle in _GONE:
        why = f" ({row.superseded_by})" if row.superseded_by else ""
        yield f"the checkpoint is {row.lifecycle}{why}: it is no resume target"
    if save.created_at > now + _CLOCK_SLACK:
        yield f"created_at is {save.created_at - now} ahead of the service's clock"
    if save.request.manifest is not None:
        yield from portability_notes(save.request.manifest)

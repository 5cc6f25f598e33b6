"""A registration whose place is known: everything that is to be stored of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ckptguard.model.manifest import DERIVED_SAVE_ID, portability_notes
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
        is_dated: The writer said it.
    """

    request: Registration
    packed: PackedManifest | None
    save_id: str
    part: str
    expected_parts: tuple[str, ...]
    created_at: datetime
    is_dated: bool

    @property
    def is_named_by_content(self) -> bool:
        """Whether every save of these bytes has this save id; what is the same for several parts is none."""
        return self.save_id.startswith(DERIVED_SAVE_ID) and len(self.expected_parts) == 1


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
        is_dated=created_at is not None,
    )


def is_gone_for_good(row: Any) -> bool:  # noqa: ANN401 - a row of `checkpoints`
    """Say whether the bytes of a checkpoint are no longer there: rewritten or deleted."""
    return row.lifecycle in _GONE and row.superseded_by != SupersededBy.ROLLED_BACK.value


def is_saved_anew(row: Any, save: Save, *, is_expected: bool) -> bool:  # noqa: ANN401 - a row of `checkpoints`
    """Say whether a save is another one than the checkpoint that has its save id, only of the same bytes.

    A job that goes back and does the same again writes the same bytes, and a save id that is made from them
    is then that of the save before. Once that one is superseded or deleted, what was made later is another
    save. What was made before it went is told late, or twice, and never brings it back.

    Args:
        row: Complete, or it would still be the same save.
        save: As told; its own `created_at` is what tells the two apart.
        is_expected: It was announced at its place since: then a writer whose clock is behind is believed too.
    """
    if not (save.is_named_by_content and save.is_dated and row.registered_at is not None):
        return False
    if row.gone_at is None or save.created_at == row.created_at:
        return False
    return is_expected or save.created_at > row.gone_at


def joined_formats(*formats: str | None) -> str | None:
    """Return the formats of several parts as one, `a+b`."""
    named = {part for each in formats if each is not None for part in each.split("+")}
    return "+".join(sorted(named)) or None


def registered_fact(
    row: Any,  # noqa: ANN401 - a row of `checkpoints`
    save: Save,
    *,
    about: Subject,
    former: Any = None,  # noqa: ANN401 - a row of `checkpoints`
) -> Fact:
    """Return what the audit is told; a save of which parts are missing is announced until they come.

    Args:
        row: As it is now.
        save: What was told of it.
        about: It.
        former: The earlier save of the same bytes whose save id it has now.
    """
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
    if former is not None:
        data["saved_before"] = former.id
    kind = EventKind.CHECKPOINT_REGISTERED if is_complete else EventKind.CHECKPOINT_ANNOUNCED
    return Fact(kind=kind, about=(about,), data=data)


def former_note(former: Any) -> str:  # noqa: ANN401 - a row of `checkpoints`
    """Return what is told of the earlier save of the same bytes."""
    why = former.superseded_by or former.lifecycle
    return f"the same was saved before, as checkpoint {former.id} ({why}); this is a save of its own"


def notes_on(row: Any, save: Save, *, now: datetime) -> Iterator[str]:  # noqa: ANN401 - a row of `checkpoints`
    """Yield what the caller may want to know of a registration that went well."""
    if row.lifecycle in _GONE:
        why = f" ({row.superseded_by})" if row.superseded_by else ""
        yield f"the checkpoint is {row.lifecycle}{why}: it is no resume target"
    if save.created_at > now + _CLOCK_SLACK:
        yield f"created_at is {save.created_at - now} ahead of the service's clock"
    if save.request.manifest is not None:
        yield from portability_notes(save.request.manifest)

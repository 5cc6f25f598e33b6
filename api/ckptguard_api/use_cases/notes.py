"""Write down what a person knows about a checkpoint; it changes nothing that a launcher gets."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.errors import InvalidRequestError
from ckptguard.model.service import EventKind
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.reasons import text_problems
from ckptguard_api.repositories import notes
from ckptguard_api.repositories.checkpoint_list import find_checkpoint
from ckptguard_api.repositories.events import record
from ckptguard_api.services import Services
from ckptguard_api.use_cases.holds import about_checkpoint

MAX_NOTE_CHARS: Final = 4000
MAX_NOTES_SHOWN: Final = 100


def note_checkpoint(
    services: Services, *, project_id: int, checkpoint_id: int, text: str, actor: Actor
) -> Row[Any]:
    """Add a note to the audit of a checkpoint; also of one that is deleted.

    Args:
        services: Of this process.
        project_id: Whose.
        checkpoint_id: About which checkpoint.
        text: Of 1 to `MAX_NOTE_CHARS` characters, in any number of lines.
        actor: Who writes.

    Returns:
        The event `checkpoint.noted`.

    Raises:
        NotFoundError: There is no such checkpoint.
        InvalidRequestError: The text cannot be kept.
    """
    kept = _checked(text)
    with services.database.write() as tx:
        row = find_checkpoint(tx, project_id, checkpoint_id)
        event = record(
            tx, EventKind.CHECKPOINT_NOTED, actor=actor, about=about_checkpoint(row), data={"text": kept}
        )
    with services.database.read() as tx:
        return notes.find_note(tx, event.id)


def notes_of(services: Services, *, project_id: int, checkpoint_id: int) -> Sequence[Row[Any]]:
    """Return the last notes about a checkpoint, newest first; `MAX_NOTES_SHOWN` at most.

    Raises:
        NotFoundError: There is no such checkpoint.
    """
    with services.database.read() as tx:
        find_checkpoint(tx, project_id, checkpoint_id)
        return notes.list_notes(tx, checkpoint_id, limit=MAX_NOTES_SHOWN)


def _checked(text: str) -> str:
    kept = text.replace("\r\n", "\n").strip()
    problems = list(_problems(kept))
    if problems:
        msg = "the note cannot be kept"
        raise InvalidRequestError(msg, problems=problems)
    return kept


def _problems(text: str) -> Iterator[str]:
    yield from text_problems(text, at="/text", max_chars=MAX_NOTE_CHARS)
    if not text:
        yield "/text: empty"

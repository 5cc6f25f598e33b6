"""Save ids that the service gives where a writer gave none: the same facts give the same id."""

import hashlib
from datetime import UTC, datetime
from typing import Final

from ckptguard.model.manifest import DERIVED_SAVE_ID

_PROVISIONAL: Final = "announced-"
_HEX_DIGITS: Final = 32


def provisional_save_id(location: str) -> str:
    """Return the save id of an announcement without one, until the registration names the real one.

    The same place gives the same id: an announcement that is repeated finds the one before.
    """
    return f"{_PROVISIONAL}{_digest(location)}"


def derived_save_id(location: str, created_at: datetime) -> str:
    """Return the save id of a checkpoint registered with neither manifest nor save id."""
    facts = f"{location}\n{created_at.astimezone(UTC).isoformat()}"
    return f"{DERIVED_SAVE_ID}{_digest(facts)}"


def former_save_id(save_id: str, created_at: datetime) -> str:
    """Return the save id that an earlier save of the same bytes keeps, once a later one has taken its own.

    Args:
        save_id: Derived from content: any save of these bytes has it.
        created_at: Of the earlier save, which tells it from the others.
    """
    facts = f"{save_id}\n{created_at.astimezone(UTC).isoformat()}"
    return f"{DERIVED_SAVE_ID}{_digest(facts)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX_DIGITS]

"""The marker of a save that is under way: an empty file beside its shards whose name says all.

A guarded writer leaves one before it removes or writes anything else, and takes it away once its manifest is
there. Two of them beside one `.metadata` tell that two saves wrote into the folder at once.
"""

import hashlib
import re
from typing import Final

from ckptguard.model.manifest_laws import is_manifest_path

_HEAD: Final = "ckptguard.saving."
_NAME: Final = re.compile(r"ckptguard\.saving\.([0-9a-f]{16})\.[0-9a-f]{8}")
_DIGEST_CHARS: Final = 16


def marker_name(save_id: str, token: str) -> str:
    """Return the name of a marker.

    Args:
        save_id: Of the save; a user may give one to two saves.
        token: Eight hex digits by chance, which no other save has.
    """
    return f"{_HEAD}{_digest(save_id)}.{token}"


def is_saving_marker(path: str) -> bool:
    """Say whether a path is that of a marker, in any folder."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None


def is_left_by_ckptguard(path: str) -> bool:
    """Say whether a path is that of a manifest or a marker, which are no part of what a job saved."""
    return is_manifest_path(path) or is_saving_marker(path)


def is_marker_of(path: str, save_id: str) -> bool:
    """Say whether a path is that of a marker of a save, in any folder."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return found is not None and found[1] == _digest(save_id)


def _digest(save_id: str) -> str:
    return hashlib.sha256(save_id.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARS]

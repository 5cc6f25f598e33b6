"""What is known of single files while a validation runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ckptguard_api.domain.file_map import STATE_OF_SEVERITY, FileState
from ckptguard_api.domain.storable_text import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedResult:
    """What one attempt found in one file, as it is stored.

    Args:
        body: zstd of its JSON.
        state: In a letter.
    """

    body: bytes
    state: FileState


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGoing:
    """One file of a running validation.

    Args:
        path: In the checkpoint.
        length_bytes: As registered; None: not known.
        state: `LISTED` until it was read to its end.
    """

    path: str
    length_bytes: int | None
    state: FileState


def state_of_scan(scan: Mapping[str, Any]) -> FileState:
    """Return the answer so far about a file that was read; `scan` is one that `scan_from_json` takes."""
    severities = {finding["severity"] for finding in scan["findings"]}
    return next(
        (state for severity, state in STATE_OF_SEVERITY.items() if severity in severities), FileState.READ
    )


def files_going(
    registered: Mapping[str, int], read: Iterable[tuple[str, str | None]]
) -> tuple[FileGoing, ...]:
    """Return every file that is known of, by path.

    Args:
        registered: Lengths by path, from the manifests; empty where there is none.
        read: Path and state, as they are stored, of the files that were read.
    """
    by_stored = {storable(path): path for path in registered}
    known = dict.fromkeys(registered, FileState.LISTED)
    for stored, state in read:
        known[by_stored.get(stored, stored)] = FileState.READ if state is None else FileState(state)
    return tuple(
        FileGoing(path=path, length_bytes=registered.get(path), state=known[path]) for path in sorted(known)
    )

"""Results of single files, stored as they come."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import zstandard

from ckptguard.errors import InvalidRequestError, TooLargeError
from ckptguard.scan.result import scan_from_json
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.files_going import PackedResult, state_of_scan
from ckptguard_api.leasing.fence import find_own_attempt, require_lease
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.repositories.file_results import (
    count_file_results,
    page_of_file_results,
    store_file_results,
)
from ckptguard_api.repositories.leases import add_new_files, note_progress
from ckptguard_api.services import Services

MAX_FILES_AT_ONCE: Final = 10_000
MAX_FILES: Final = 1_000_000
"""Of one validation."""
MAX_PAGE_BYTES: Final = 32 << 20
"""Of one answer, decoded; a single larger result comes alone."""

_PAGE_ROWS: Final = 1000
_MEMBERS: Final = frozenset({"scan", "device", "versions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How many were stored, and how many of these are of files that had no result."""

    stored: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePage:
    """Some of the results that there are.

    Args:
        files: JSON texts, each a result as it was sent.
        next: Cursor of the rest; None: there is none.
    """

    files: tuple[bytes, ...]
    next: str | None


def store_files(services: Services, key: LeaseKey, *, files: Sequence[Any], actor: Actor) -> Stored:
    """Store results; the same again changes nothing, and a later one of the same file replaces it.

    Raises:
        InvalidRequestError: Some are no results; `problems` says which, and none was stored.
        TooLargeError: Too many.
        LeaseLostError: The lease is over, or is not the caller's.
    """
    packed = _packed(files)
    with services.database.write() as tx:
        lease = require_lease(tx, key, actor=actor)
        if count_file_results(tx, lease.validation_id) + len(packed) > MAX_FILES:
            msg = f"more than {MAX_FILES} files of one validation"
            raise TooLargeError(msg)
        new = store_file_results(
            tx, validation_id=lease.validation_id, attempt_id=lease.attempt_id, results=packed
        )
        if new:
            add_new_files(tx, lease.attempt_id, count=new)
            note_progress(tx, lease.attempt_id)
        return Stored(stored=len(packed), new=new)


def known_files(services: Services, key: LeaseKey, *, after: str = "", actor: Actor) -> FilePage:
    """Return what this and earlier attempts stored, from a cursor on.

    Raises:
        LeaseLostError: The lease is not the caller's.
    """
    files: list[bytes] = []
    with services.database.read() as tx:
        _, validation = find_own_attempt(tx, key, actor=actor)
        rows = page_of_file_results(tx, validation.id, after=after, limit=_PAGE_ROWS)
    size, cursor = 0, after
    for row in rows:
        body = zstandard.ZstdDecompressor().decompress(row.result)
        if files and size + len(body) > MAX_PAGE_BYTES:
            return FilePage(files=tuple(files), next=cursor)
        files.append(body)
        size, cursor = size + len(body), row.path_digest
    return FilePage(files=tuple(files), next=cursor if len(rows) == _PAGE_ROWS else None)


def _packed(files: Sequence[Any]) -> dict[str, PackedResult]:
    if len(files) > MAX_FILES_AT_ONCE:
        msg = f"{len(files)} files at once; at most {MAX_FILES_AT_ONCE}"
        raise TooLargeError(msg)
    problems: list[str] = []
    packed: dict[str, PackedResult] = {}
    compressor = zstandard.ZstdCompressor()
    for index, value in enumerate(files):
        problem = _problem(value)
        if problem is not None:
            problems.append(f"/files/{index}: {problem}")
        else:
            text = json.dumps(value, separators=(",", ":"), sort_keys=True)
            body, state = compressor.compress(text.encode()), state_of_scan(value["scan"])
            packed[value["scan"]["path"]] = PackedResult(body=body, state=state)
    if problems:
        msg = "no file results"
        raise InvalidRequestError(msg, problems=problems)
    return packed


def _problem(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    if not isinstance(value, Mapping) or set(value) != _MEMBERS:
        return f"not an object of {', '.join(sorted(_MEMBERS))}"
    if not isinstance(value["device"], str | None) or not isinstance(value["versions"], Mapping):
        return "device is no text, or versions no object"
    try:
        scan_from_json(value["scan"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return f"scan: {type(error).__name__}: {error}"
    return None

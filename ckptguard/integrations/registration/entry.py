"""One registration that waits to be sent, as a value and as JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

import xxhash

from ckptguard.client.answers import Registered
from ckptguard.client.call import Call
from ckptguard.client.calls import register as register_call
from ckptguard.client.decode import decode, parse_json, time_text
from ckptguard.errors import FormatError, ServiceError
from ckptguard.model.policy import Depth

SCHEMA: Final = 1
_MAX_REASON_CHARS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is told to the service, to which one, and how to see that it still holds.

    Args:
        run: Its name.
        step: Of the checkpoint.
        save_id: Of the save.
        location: Of the checkpoint, as the service is told.
        manifest: Of this part, as JSON values.
        manifest_at: Path or URL of the manifest, once the trainer is done with the checkpoint's folder.
        manifest_digest: XXH3-128 of that file, in hex digits.
        manifest_bytes: Its length.
        saved_at: When the save was committed.
        depth: Of the validation.
        is_validated: Ask for a verdict.
        branch: Of the run; None: the service's choice.
        is_branch_inherited: Nobody asked for it: it is that of the job's start.
        service: `CKPTGUARD_URL` of the job; None: whichever service is found.
        project: `CKPTGUARD_PROJECT` of the job.
        refused: Why the service would not have it; None: it was not asked, or gave no answer.
    """

    run: str
    step: int
    save_id: str
    location: Mapping[str, str]
    manifest: Mapping[str, Any]
    manifest_at: str
    manifest_digest: str
    manifest_bytes: int
    saved_at: datetime
    depth: Depth = Depth.LOAD
    is_validated: bool = True
    branch: int | None = None
    is_branch_inherited: bool = False
    service: str | None = None
    project: str | None = None
    refused: str | None = None

    @property
    def call(self) -> Call[Registered]:
        """Return the request."""
        return register_call(
            self.run,
            step=self.step,
            location=self.location,
            save_id=self.save_id,
            manifest=self.manifest,
            branch=self.branch,
            depth=self.depth,
            validate=self.is_validated,
        )

    @property
    def in_any_branch(self) -> "Entry":
        """Return the same, in whichever branch the run is in."""
        return replace(self, branch=None)

    def is_for(self, *, url: str, project: str | None) -> bool:
        """Say whether a service and project are those that the job meant."""
        return self.service in {None, url} and self.project in {None, project}


def digest_of(data: bytes) -> str:
    """Return what `Entry.manifest_digest` is compared with."""
    return xxhash.xxh3_128(data).hexdigest()


def to_json(entry: Entry) -> bytes:
    """Return one line of JSON."""
    values = {each.name: getattr(entry, each.name) for each in fields(Entry)}
    values["saved_at"] = time_text(entry.saved_at)
    values = {"schema": SCHEMA, **{name: value for name, value in values.items() if value is not None}}
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse_entry(data: bytes) -> Entry:
    """Parse what `to_json` wrote.

    Raises:
        FormatError: It is something else, or of a later version.
    """
    try:
        value = parse_json(data)
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            msg = "not an entry of a spool, or of another version of ckptguard"
            raise FormatError(msg)
        return decode(Entry, value, at="entry")
    except ServiceError as error:
        msg = f"not an entry of a spool: {error}"
        raise FormatError(msg) from error


def shortened(reason: str) -> str:
    """Return a reason that fits into an entry."""
    return reason[:_MAX_REASON_CHARS]

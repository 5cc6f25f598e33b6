"""Whether two verdicts speak of the same bytes."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckptguard.model.report import FileEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesSeen:
    """What a verdict binds to, in two digests.

    Args:
        identity: Of path, length and version (else modification time) of each file: what the store says.
        content: Of path, length and checksum of each file; None where not every file was read.
    """

    identity: str
    content: str | None = None

    def is_same_as(self, other: "BytesSeen") -> bool:
        """Say whether both saw the same bytes.

        One of the two digests is enough: a copy has other versions and the same content, and a medium
        that now reads otherwise has the same versions. Doubt counts as the same, so that damage stays.
        """
        return self.identity == other.identity or (self.content is not None and self.content == other.content)


def bytes_seen(files: Sequence[FileEvidence]) -> BytesSeen:
    """Digest the evidence of a report; the order of files means nothing."""
    ordered = sorted(files, key=lambda file: file.path)
    has_content = bool(ordered) and all(file.checksum is not None for file in ordered)
    return BytesSeen(
        identity=_digest([file.path, file.length_bytes, _version(file)] for file in ordered),
        content=(
            _digest([file.path, file.length_bytes, str(file.checksum)] for file in ordered)
            if has_content
            else None
        ),
    )


def _version(file: FileEvidence) -> str | None:
    if file.version is not None:
        return file.version
    return file.modified_at.isoformat() if file.modified_at is not None else None


def _digest(rows: Iterable[list[str | int | None]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, separators=(",", ":")).encode())
    return f"sha256:{digest.hexdigest()}"

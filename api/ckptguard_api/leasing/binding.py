"""Holds a report against the manifests of the checkpoint that its lease is about."""

from dataclasses import dataclass

import orjson
import zstandard

from ckptguard.errors import ConflictError, InvalidRequestError
from ckptguard.model.policy import Depth
from ckptguard.model.report import Report
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.report_binding import RegisteredFile, contradictions
from ckptguard_api.repositories.manifests import manifest_body
from ckptguard_api.repositories.registered_parts import manifests_of
from ckptguard_api.repositories.validations import ValidationRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A report, and the manifests that it was held against.

    Args:
        manifest_ids: By part.
    """

    manifest_ids: tuple[tuple[str, int], ...]

    def require_same(self, tx: Transaction, checkpoint_id: int) -> None:
        """Hold that the writer registered no other manifest meanwhile.

        Raises:
            ConflictError: It did; the next attempt knows it.
        """
        if manifests_of(tx, checkpoint_id) != self.manifest_ids:
            msg = "another manifest was registered meanwhile"
            raise ConflictError(msg)


def bind(tx: Transaction, validation: ValidationRow, report: Report) -> Bound:
    """Hold a report against what was asked for and registered.

    Cost: the manifests are unpacked for a VALID alone; a second for 500,000 files.

    Raises:
        InvalidRequestError: It contradicts them; `problems` says every way.
    """
    ids = manifests_of(tx, validation.checkpoint_id)
    registered: dict[str, RegisteredFile] = {}
    if report.judgement.verdict is Verdict.VALID:
        for part, manifest_id in ids:
            registered |= _files(part, manifest_body(tx, manifest_id))
    problems = list(contradictions(report, depth=Depth(validation.depth), registered=registered))
    if problems:
        msg = "the report contradicts what was asked for or registered"
        raise InvalidRequestError(msg, problems=problems)
    return Bound(manifest_ids=ids)


def _files(part: str, body: bytes) -> dict[str, RegisteredFile]:
    folder = f"{part}/" if part else ""
    listed = orjson.loads(zstandard.ZstdDecompressor().decompressobj().decompress(body))["files"]
    return {
        folder + file["path"]: RegisteredFile(length_bytes=file["length_bytes"], checksum=file["checksum"])
        for file in listed
    }

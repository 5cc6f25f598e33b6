"""What a report must not contradict: what was asked for, and what the writer registered.

A worker is believed about bytes that nobody else saw, and about nothing else. So a VALID that speaks of
other files than the manifest's, of fewer, or of more than was asked for is no verdict of this checkpoint,
whether its worker is broken, was given another one's report, or lies.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptguard.model.policy import Depth
from ckptguard.model.report import FileEvidence, Report
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.domain.reach import REACH


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredFile:
    """A file as its manifest lists it.

    Args:
        length_bytes: Exactly.
        checksum: `algorithm:hex`.
    """

    length_bytes: int
    checksum: str


def contradictions(
    report: Report, *, depth: Depth, registered: Mapping[str, RegisteredFile]
) -> Iterator[str]:
    """Yield each way in which a report that gives VALID cannot be about what it was asked about.

    Args:
        report: Of a worker.
        depth: That was asked for.
        registered: Files of all manifests of the checkpoint, by path in it; empty: there is none, and
            nothing binds the report to the bytes but the worker's word.
    """
    judgement = report.judgement
    if judgement.verdict is not Verdict.VALID or judgement.assurance is None:
        return
    if judgement.assurance.rank > REACH[depth].rank:
        yield f"/checks: VALID at {judgement.assurance}, and {depth} was asked for"
    counts = Counter(file.path for file in report.files)
    yield from (f"/files: {path!r} stands {count} times" for path, count in counts.items() if count > 1)
    seen = {file.path: file for file in report.files}
    is_read = judgement.assurance.rank >= Assurance.CONTENT.rank
    for path, file in registered.items():
        problem = _problem(file, seen.get(path), is_read=is_read)
        if problem is not None:
            yield f"/files: {path!r} {problem}"


def _problem(file: RegisteredFile, seen: FileEvidence | None, *, is_read: bool) -> str | None:
    if seen is None:
        return "is in the manifest and not in the report"
    if seen.length_bytes != file.length_bytes:
        return f"has {seen.length_bytes} bytes, and {file.length_bytes} in the manifest"
    if is_read and str(seen.checksum) != file.checksum:
        return f"has the checksum {seen.checksum}, and {file.checksum} in the manifest"
    return None

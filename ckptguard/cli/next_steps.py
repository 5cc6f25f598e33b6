"""What to do next: one line for every finding code, with the exact command."""

import shlex
from collections.abc import Mapping
from typing import Final

from ckptguard.cli.plain_text import printable
from ckptguard.model.finding import Finding, FindingCode, Severity
from ckptguard.model.report import Report

MAX_STEPS: Final = 4
"""More than this is not read."""

_ALL_STEPS: Final = "ckptguard check {folder} --step all"
_RESUME_FROM_OLDER: Final = "Resume from an older step: ckptguard check {folder} --step all"
_COPY_AGAIN: Final = "If this is a copy, copy {file} again; else use an older step: {all_steps}"
_SAVE_AGAIN: Final = "The save never finished. Save again, or use an older step: {all_steps}"
_METADATA: Final = "If this is a copy, copy the metadata again; else use an older step: {all_steps}"
_WRITER: Final = "The bytes are as the writer left them: report it to the writer; older steps: {all_steps}"
_NO_CONTENT_PROOF: Final = (
    "The format cannot prove content. Keep a manifest from now on: ckptguard manifest {path} --write"
)
_NUMBERS: Final = "Look at the values of {fqn}; if they are meant, check with --numerics report"
_PICKER: Final = "Correct the pointer before anything resumes by it: ckptguard check {folder} --step all"

NEXT_STEPS: Final[Mapping[FindingCode, str]] = {
    FindingCode.MISSING_SHARD: _COPY_AGAIN,
    FindingCode.NOT_COMMITTED: _SAVE_AGAIN,
    FindingCode.SHORT_SHARD: _COPY_AGAIN,
    FindingCode.LONG_SHARD: _COPY_AGAIN,
    FindingCode.EMPTY_METADATA: _METADATA,
    FindingCode.TRUNCATED_METADATA: _METADATA,
    FindingCode.MALFORMED_METADATA: _METADATA,
    FindingCode.UNSAFE_PICKLE: (
        "Do not load it with anything: it would run code. Quarantine it and find out who wrote {file}"
    ),
    FindingCode.UNKNOWN_GLOBAL: ("If you trust that class: ckptguard check {path} --allow-global {observed}"),
    FindingCode.OBJECT_NOT_BUILT: (
        "Content is proven, the object was not built. If you trust it: --allow-global {observed}"
    ),
    FindingCode.PATH_ESCAPE: (
        "Nothing outside was opened. If it is a link you trust: ckptguard check {path} --root FOLDER"
    ),
    FindingCode.LINK_FOLLOWED: "Nothing to do: the link's target is inside the root",
    FindingCode.ITEM_OUT_OF_BOUNDS: _COPY_AGAIN,
    FindingCode.ITEM_OVERLAP: _WRITER,
    FindingCode.ORPHAN_ITEM: _WRITER,
    FindingCode.MISSING_ITEM: _WRITER,
    FindingCode.COVERAGE_HOLE: _WRITER,
    FindingCode.COVERAGE_OVERLAP: _WRITER,
    FindingCode.SLICE_OUT_OF_BOUNDS: _WRITER,
    FindingCode.RANK_LOCAL_METADATA: (
        "Each rank's part is judged alone; save with collectives for a proof across ranks"
    ),
    FindingCode.CRC_MISMATCH: _COPY_AGAIN,
    FindingCode.CRC_ABSENT: (
        "Save with torch.serialization.set_crc32_options(True), "
        "or keep a manifest: ckptguard manifest {path} --write"
    ),
    FindingCode.NO_CHECKSUM: _NO_CONTENT_PROOF,
    FindingCode.ZIP_MALFORMED: _COPY_AGAIN,
    FindingCode.TRANSFORM_MALFORMED: _COPY_AGAIN,
    FindingCode.HEADER_MALFORMED: _COPY_AGAIN,
    FindingCode.INDEX_MISMATCH: "See that index and shards are of one save; older steps: {all_steps}",
    FindingCode.CHECKSUM_MISMATCH: _COPY_AGAIN,
    FindingCode.DTYPE_MISMATCH: _RESUME_FROM_OLDER,
    FindingCode.SHAPE_MISMATCH: _RESUME_FROM_OLDER,
    FindingCode.LOAD_FAILED: "torch's own loader refuses it. Use an older step: {all_steps}",
    FindingCode.NEEDS_OTHER_READER: (
        "Name the software that will load it: ckptguard check {path} --reader torch=2.14,python=3.13"
    ),
    FindingCode.READER_NOT_INSTALLED: "Install what reads it: pip install 'ckptguard[canary,zstd]'",
    FindingCode.NON_FINITE: _NUMBERS,
    FindingCode.ALL_ZERO: _NUMBERS,
    FindingCode.ALL_DENORMAL: _NUMBERS,
    FindingCode.VALUE_JUMP: _NUMBERS,
    FindingCode.MISSING_TENSOR: "The profile asks for more than was saved; correct one of them",
    FindingCode.MIXED_SAVES: _RESUME_FROM_OLDER,
    FindingCode.REWRITTEN_AFTER_COMMIT: (
        "Perhaps a torn re-save. If times were lost in a copy: ckptguard check {path} --ignore-mtime"
    ),
    FindingCode.UNSTABLE_READ: (
        "Two reads differ: suspect memory, cable, disk. On another machine: ckptguard check {path} --direct"
    ),
    FindingCode.CHANGED_DURING_CHECK: "Wait until nothing writes there: ckptguard check {path}",
    FindingCode.STALE_SHARD: "Nothing refers to {file}; a resume ignores it",
    FindingCode.UNREFERENCED_FILE: "Nothing refers to {file}; a resume ignores it",
    FindingCode.UNFINISHED_MARKER: (
        "Remove the marker only if the save is known to have finished; else: {all_steps}"
    ),
    FindingCode.POINTER_STALE: _PICKER,
    FindingCode.MANIFEST_MISMATCH: "Find out which manifest the save wrote; name it: --manifest FILE",
    FindingCode.MANIFEST_UNREADABLE: (
        "Take the manifest that the save wrote, or see its problems: ckptguard manifest --show {file}"
    ),
    FindingCode.UNKNOWN_LAYOUT: "Name the folder that holds the checkpoint itself, or an adapter's package",
    FindingCode.LIMIT_EXCEEDED: "Beyond a stated limit; if the size is meant, check it in parts",
    FindingCode.STORE_UNAVAILABLE: "The store gave no answer. Later again: ckptguard check {path}",
    FindingCode.ACCESS_DENIED: "Give this user, or these credentials, the right to list and read {file}",
    FindingCode.CANARY_CRASHED: (
        "The bytes were judged without it. If memory ran out: ckptguard check {path} --window 256MiB --jobs 1"
    ),
    FindingCode.DEADLINE_EXCEEDED: "Give it more time: ckptguard check {path} --deadline 2h",
    FindingCode.WORKER_LOST: (
        "Look at the workers, then ask again: ckptguard revalidate; "
        "meanwhile, by hand: ckptguard check {path}"
    ),
}
"""docs/findings.md says more about each."""

_DECISIVE: Final = (Severity.ERROR, Severity.UNKNOWN, Severity.WARNING)


def next_steps(report: Report) -> tuple[str, ...]:
    """Return what to do, gravest first, each line once, at most `MAX_STEPS`."""
    lines: dict[str, None] = {}
    for severity in _DECISIVE:
        for finding in (*report.findings, *report.other_findings):
            if finding.severity is severity:
                lines.setdefault(_fill(NEXT_STEPS[finding.code], finding, report))
                if len(lines) == MAX_STEPS:
                    return tuple(lines)
        if lines:
            break
    return tuple(lines)


def _fill(template: str, finding: Finding, report: Report) -> str:
    folder = folder_of_steps(report)
    values = _values(report.target, folder, file=finding.file, observed=finding.observed)
    return template.format(fqn=_tensor(finding.fqn), **values)


def _values(target: str, folder: str, *, file: str | None, observed: str | None) -> dict[str, str]:
    """Return what a template names but a tensor, which stands in no command."""
    word = shell_word(folder)
    return {
        "path": shell_word(target),
        "folder": word,
        "all_steps": _ALL_STEPS.format(folder=word),
        "file": shell_word(file) if file else "the file",
        "observed": shell_word(observed or "MODULE.NAME"),
    }


def _tensor(fqn: str | None) -> str:
    return printable(fqn or "the tensors")


def next_step_of(
    code: str, *, target: str, file: str | None = None, fqn: str | None = None, observed: str | None = None
) -> str | None:
    """Return what to do about a finding that the service tells; None for a code of a later version.

    Args:
        code: Of the finding.
        target: Path or URL of its checkpoint.
        file: Concerned.
        fqn: Of the tensor concerned.
        observed: What was seen.
    """
    if code not in set(FindingCode):
        return None
    values = _values(target, _parent_of(target), file=file, observed=observed)
    return NEXT_STEPS[FindingCode(code)].format(fqn=_tensor(fqn), **values)


def next_command_of(
    code: str, *, target: str, file: str | None = None, observed: str | None = None
) -> str | None:
    """Return the command that `next_step_of` ends with; None: it ends with none.

    Args:
        code: Of the finding.
        target: Path or URL of its checkpoint.
        file: Concerned.
        observed: What was seen.

    Guarantees: a name in the sentence, whatever it says, is never taken for the command.
    """
    if code not in set(FindingCode):
        return None
    template = NEXT_STEPS[FindingCode(code)].replace("{all_steps}", _ALL_STEPS)
    _, found, command = template.rpartition(": ckptguard ")
    if not found:
        return None
    values = _values(target, _parent_of(target), file=file, observed=observed)
    return f"ckptguard {command}".format(**values)


def _parent_of(target: str) -> str:
    parent, separator, _ = target.rstrip("/").rpartition("/")
    return parent or separator or "."


def folder_of_steps(report: Report) -> str:
    """Return the folder whose other steps may be looked at."""
    if report.steps:
        return report.target
    parent, separator, _ = report.target.rstrip("/").rpartition("/")
    return parent or separator or "."


def shell_word(text: str) -> str:
    """Return text as one word of a shell command, harmless on a terminal."""
    return shlex.quote(printable(text))

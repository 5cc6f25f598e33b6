"""Megatron-core's `integrity.json`: a SHA-256 per file of the checkpoint's own folder.

Source: `save_integrity_manifest`, megatron-core 0.20 dist_checkpointing/validation.py
(integrity.py in some earlier versions): `{"algorithm": "sha256", "files": {NAME: HEX}}`,
names directly in the folder. Rank 0 reads the files back to make it, so it proves that
they are unchanged since, not that they come from one save.
"""

from contextlib import suppress
from typing import Any, Final

from ckptguard.errors import LimitExceededError, ManifestFormatError, UnsupportedFormatError
from ckptguard.formats.manifest_json import ManifestLimits, bounded_problems
from ckptguard.formats.strict_json import JsonLimits, parse_strict_json
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.json_fields import Fields, Problems, TooManyProblemsError, pointer_of
from ckptguard.model.manifest_laws import path_problems

INTEGRITY_NAME: Final = "integrity.json"


def parse_integrity(data: bytes, *, limits: ManifestLimits | None = None) -> tuple[tuple[str, Checksum], ...]:
    """Parse a whole `integrity.json`.

    Returns:
        Each file's name and SHA-256, sorted by name.

    Raises:
        ManifestFormatError: With every problem, each with its JSON pointer.
        UnsupportedFormatError: Another algorithm, which Megatron itself refuses too.
        LimitExceededError: Beyond `limits`.
    """
    limits = limits or ManifestLimits()
    parsed = parse_strict_json(
        data,
        JsonLimits(max_bytes=limits.max_bytes, max_depth=limits.max_depth, max_values=limits.max_values),
    )
    if not isinstance(parsed.value, dict):
        raise ManifestFormatError([": not a JSON object"])
    problems = Problems(parsed.problems)
    checksums: dict[str, Checksum] = {}
    with suppress(TooManyProblemsError):
        checksums = _checksums(Fields(dict(parsed.value), "", problems), limits)
    if problems.lines:
        raise ManifestFormatError(bounded_problems(problems.lines, limits.max_problems))
    return tuple(sorted(checksums.items()))


def _checksums(top: Fields, limits: ManifestLimits) -> dict[str, Checksum]:
    # Megatron's own reader takes sha256 where the field is missing.
    algorithm = top.text("algorithm", instead=Algorithm.SHA256) if top.has("algorithm") else Algorithm.SHA256
    if algorithm != Algorithm.SHA256:
        msg = f"{INTEGRITY_NAME} with algorithm {algorithm[:40]!r}"
        raise UnsupportedFormatError(msg)
    files = top.fields_of("files").members
    if len(files) > limits.max_files:
        msg = f"{INTEGRITY_NAME} lists {len(files)} files, limit {limits.max_files}"
        raise LimitExceededError(msg)
    return {name: _checksum(name, digest, top.problems) for name, digest in files.items()}


def _checksum(name: str, digest: Any, problems: Problems) -> Checksum:  # noqa: ANN401 - a JSON value
    at = pointer_of("files", name)
    problems.extend(path_problems(name, at=at))
    if "/" in name:
        problems.note(at, "not directly in the folder")
    try:
        return Checksum(algorithm=Algorithm.SHA256, hex_digits=digest if isinstance(digest, str) else "")
    except ValueError as error:
        problems.note(at, str(error)[:160])
        return Checksum(algorithm=Algorithm.SHA256, hex_digits="0" * 64)

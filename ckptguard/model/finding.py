"""Findings: one fact found, with a stable code and its evidence.

`FindingCode` is public API: codes are added, never renamed. Each has a page in
docs/findings.md, which a test holds against this enumeration.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """What a finding does to the verdict (design §3)."""

    ERROR = "error"  # speaks against: INVALID
    UNKNOWN = "unknown"  # in doubt: UNKNOWN
    WARNING = "warning"  # may cap the assurance
    INFO = "info"


class Basis(StrEnum):
    """Why an error finding condemns."""

    DAMAGE = "damage"
    UNSAFE = "unsafe"
    POLICY = "policy"


class CheckName(StrEnum):
    """The checks, in the order of design §3."""

    EXISTENCE = "existence"
    BYTE_COUNT = "byte_count"
    COVERAGE = "coverage"
    CONTENT = "content"
    LOAD = "load"
    PROVENANCE = "provenance"
    NUMERICS = "numerics"
    PROBE = "probe"


class FindingCode(StrEnum):
    """Stable names of everything that can be found."""

    MISSING_SHARD = "missing_shard"
    NOT_COMMITTED = "not_committed"
    SHORT_SHARD = "short_shard"
    LONG_SHARD = "long_shard"
    EMPTY_METADATA = "empty_metadata"
    TRUNCATED_METADATA = "truncated_metadata"
    MALFORMED_METADATA = "malformed_metadata"
    UNSAFE_PICKLE = "unsafe_pickle"
    UNKNOWN_GLOBAL = "unknown_global"
    OBJECT_NOT_BUILT = "object_not_built"
    PATH_ESCAPE = "path_escape"
    LINK_FOLLOWED = "link_followed"
    ITEM_OUT_OF_BOUNDS = "item_out_of_bounds"
    ITEM_OVERLAP = "item_overlap"
    ORPHAN_ITEM = "orphan_item"
    MISSING_ITEM = "missing_item"
    COVERAGE_HOLE = "coverage_hole"
    COVERAGE_OVERLAP = "coverage_overlap"
    SLICE_OUT_OF_BOUNDS = "slice_out_of_bounds"
    RANK_LOCAL_METADATA = "rank_local_metadata"
    CRC_MISMATCH = "crc_mismatch"
    CRC_ABSENT = "crc_absent"
    NO_CHECKSUM = "no_checksum"
    ZIP_MALFORMED = "zip_malformed"
    TRANSFORM_MALFORMED = "transform_malformed"
    HEADER_MALFORMED = "header_malformed"
    INDEX_MISMATCH = "index_mismatch"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    DTYPE_MISMATCH = "dtype_mismatch"
    SHAPE_MISMATCH = "shape_mismatch"
    LOAD_FAILED = "load_failed"
    NEEDS_OTHER_READER = "needs_other_reader"
    READER_NOT_INSTALLED = "reader_not_installed"
    NON_FINITE = "non_finite"
    ALL_ZERO = "all_zero"
    ALL_DENORMAL = "all_denormal"
    VALUE_JUMP = "value_jump"
    MISSING_TENSOR = "missing_tensor"
    MIXED_SAVES = "mixed_saves"
    REWRITTEN_AFTER_COMMIT = "rewritten_after_commit"
    UNSTABLE_READ = "unstable_read"
    CHANGED_DURING_CHECK = "changed_during_check"
    STALE_SHARD = "stale_shard"
    UNREFERENCED_FILE = "unreferenced_file"
    UNFINISHED_MARKER = "unfinished_marker"
    POINTER_STALE = "pointer_stale"
    MANIFEST_MISMATCH = "manifest_mismatch"
    MANIFEST_UNREADABLE = "manifest_unreadable"
    UNKNOWN_LAYOUT = "unknown_layout"
    LIMIT_EXCEEDED = "limit_exceeded"
    STORE_UNAVAILABLE = "store_unavailable"
    ACCESS_DENIED = "access_denied"
    CANARY_CRASHED = "canary_crashed"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    WORKER_LOST = "worker_lost"


MAX_TEXT_CHARS: Final = 8192
"""Of one text of a finding: more than any path, name or tail of output that a person reads."""

_LEFT_OUT: Final = " ... "
_TEXTS: Final = ("message", "file", "record", "fqn", "expected", "observed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact found by one check.

    Texts longer than `MAX_TEXT_CHARS` keep their ends: names come from the checkpoint, and
    one of ten megabytes would otherwise stand in every finding about it.

    Args:
        code: Stable name.
        check: The check that asked.
        severity: What it does to the verdict.
        message: One sentence for a person; names what is damaged, not how it was found.
        basis: Set exactly for `error` findings.
        file: Path relative to the checkpoint's root.
        offset: First byte concerned, from the start of the file.
        length_bytes: Bytes concerned.
        record: Entry of the item's zip, e.g. `data/0`.
        fqn: Tensor or object concerned.
        slice_offsets: Corner of the slice concerned, in elements of the whole tensor.
        slice_sizes: Extent of that slice, in elements.
        expected: What should be there, as text.
        observed: What is there, as text.
        is_retryable: True where time alone may change it.
    """

    code: FindingCode
    check: CheckName
    severity: Severity
    message: str
    basis: Basis | None = None
    file: str | None = None
    offset: int | None = None
    length_bytes: int | None = None
    record: str | None = None
    fqn: str | None = None
    slice_offsets: tuple[int, ...] | None = None
    slice_sizes: tuple[int, ...] | None = None
    expected: str | None = None
    observed: str | None = None
    is_retryable: bool = False

    def __post_init__(self) -> None:
        """Hold the law that an error has a basis and nothing else does; bound the texts."""
        if (self.severity is Severity.ERROR) != (self.basis is not None):
            msg = f"{self.code}: exactly error findings have a basis"
            raise ValueError(msg)
        for name in _TEXTS:
            text = getattr(self, name)
            if text is not None and len(text) > MAX_TEXT_CHARS:
                object.__setattr__(self, name, _shortened(text))


def _shortened(text: str) -> str:
    kept = (MAX_TEXT_CHARS - len(_LEFT_OUT)) // 2
    return f"{text[:kept]}{_LEFT_OUT}{text[-kept:]}"

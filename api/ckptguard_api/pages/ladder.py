"""The ladder of checks as a verdict climbed it: one rung for each check of the protocol."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.cli.plain_text import count_text
from ckptguard.model.finding import CheckName

_QUESTIONS: Final = {
    CheckName.EXISTENCE: "Is every expected file there, and is each part committed?",
    CheckName.BYTE_COUNT: "Does every file have the bytes expected?",
    CheckName.COVERAGE: "Do the slices of every tensor tile it, and has each a home?",
    CheckName.CONTENT: "Does every byte match: checksums, CRCs, structure, dtype, shape?",
    CheckName.LOAD: "Does every item load through torch, and could stock torch open it?",
    CheckName.PROVENANCE: "Do all files come from one save?",
    CheckName.NUMERICS: "Are the values finite, not all zero, and without a jump?",
    CheckName.PROBE: "Does the user's function give the value recorded at save?",
}
_PROVES: Final = {
    CheckName.COVERAGE: "structure",
    CheckName.CONTENT: "content",
    CheckName.LOAD: "loaded",
    CheckName.PROBE: "resumable",
}
_SYMBOLS: Final = {"pass": "✓", "fail": "✗", "unknown": "?", "skipped": "○"}
_NOT_ASKED: Final = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One check, and how it ended.

    Args:
        number: Its place in the protocol, from 1.
        name: Of the check.
        question: What it asks.
        proves: Assurance that is reached when it and all below it pass; None: none of its own.
        status: How it ended; `skipped` where it was not run.
        reason: Why, if not `pass`.
        counts: What was counted, e.g. `64 files`.
        seconds: Wall time; None: it was not run.
        bytes_read: From storage on its behalf; None: it was not run.
    """

    number: int
    name: str
    question: str
    proves: str | None
    status: str
    reason: str
    counts: tuple[str, ...]
    seconds: float | None
    bytes_read: int | None

    @property
    def symbol(self) -> str:
        """A mark of its own shape for each status."""
        return _SYMBOLS.get(self.status, "?")

    @property
    def bytes_per_s(self) -> float | None:
        """Rate; None: it read nothing, or took no time that was measured."""
        return self.bytes_read / self.seconds if self.bytes_read and self.seconds else None


def ladder_of(checks: Sequence[Row[Any]]) -> tuple[Rung, ...]:
    """Return every rung, in the order of the protocol.

    Args:
        checks: Rows of `check_results` of one validation.
    """
    ended = {check.name: check for check in checks}
    return tuple(_rung(number, name, ended.get(name.value)) for number, name in enumerate(CheckName, start=1))


def _rung(number: int, name: CheckName, check: Row[Any] | None) -> Rung:
    return Rung(
        number=number,
        name=name.value,
        question=_QUESTIONS[name],
        proves=_PROVES.get(name),
        status=_NOT_ASKED if check is None else check.status,
        reason="not part of this validation" if check is None else check.reason,
        counts=() if check is None else tuple(_counts(check.counts)),
        seconds=None if check is None else check.seconds,
        bytes_read=None if check is None else check.bytes_read,
    )


def _counts(counts: Mapping[str, Any]) -> Iterator[str]:
    for noun, count in sorted(counts.items()):
        if isinstance(count, int):
            yield count_text(count, noun)

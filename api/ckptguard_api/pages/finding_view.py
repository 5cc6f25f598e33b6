"""Findings as a page shows them: where, what was expected, what is there, what to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row

from ckptguard.cli.next_steps import next_command_of, next_step_of
from ckptguard.cli.plain_text import count_text
from ckptguard_api.repositories.checkpoint_list import CheckpointRow

_SYMBOLS: Final = {"error": "✗", "unknown": "?", "warning": "!", "info": "i"}
_WORDS: Final = {"error": "error", "unknown": "in doubt", "warning": "warning", "info": "info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One finding.

    Args:
        number: In its report.
        code: Stable name.
        severity: `error`, `unknown`, `warning` or `info`.
        check: That found it.
        basis: Of an error.
        message: One sentence.
        places: Label and text of where it is and what was seen; only what is known.
        next_step: What to do, without the command that it ends with; None: nothing is known.
        next_command: To copy; None: there is none.
        is_about_checkpoint: Not only about its surroundings.
    """

    number: int
    code: str
    severity: str
    check: str
    basis: str | None
    message: str
    places: tuple[tuple[str, str], ...]
    next_step: str | None
    next_command: str | None
    is_about_checkpoint: bool

    @property
    def symbol(self) -> str:
        """A mark of its own shape for each severity."""
        return _SYMBOLS.get(self.severity, "·")

    @property
    def grade(self) -> str:
        """The severity as people say it."""
        return _WORDS.get(self.severity, self.severity)


def finding_views(rows: Sequence[Row[Any]], checkpoint: CheckpointRow) -> tuple[FindingView, ...]:
    """Return findings in their order.

    Args:
        rows: Of `findings`.
        checkpoint: Whose; commands of what to do name its place.
    """
    target = checkpoint.location.removeprefix("file://")
    return tuple(_view(row, target) for row in rows)


def _view(row: Row[Any], target: str) -> FindingView:
    value: Mapping[str, Any] = row.value
    observed = value.get("observed")
    step = next_step_of(row.code, target=target, file=row.file, fqn=row.fqn, observed=observed)
    command = next_command_of(row.code, target=target, file=row.file, observed=observed)
    return FindingView(
        number=row.number,
        code=row.code,
        severity=row.severity,
        check=row.check,
        basis=value.get("basis"),
        message=row.message,
        places=tuple(_places(value)),
        next_step=step if step is None or command is None else step.removesuffix(command).rstrip(),
        next_command=command,
        is_about_checkpoint=row.is_about_checkpoint,
    )


def _places(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for label, text in (
        ("File", value.get("file")),
        ("Bytes", _extent(value.get("offset"), value.get("length_bytes"))),
        ("Record", value.get("record")),
        ("Tensor", value.get("fqn")),
        ("Slice", _slice(value.get("slice"))),
        ("Expected", value.get("expected")),
        ("Observed", value.get("observed")),
    ):
        if text is not None:
            yield label, text


def _extent(offset: int | None, length_bytes: int | None) -> str | None:
    if offset is None:
        return None
    return f"from byte {offset:,}" + (
        f", {count_text(length_bytes, 'bytes')}" if length_bytes is not None else ""
    )


def _slice(value: Mapping[str, Any] | None) -> str | None:
    """Return a slice as Python writes one, e.g. `[32:48, 0:32]`."""
    if value is None:
        return None
    pairs = zip(value.get("offsets", ()), value.get("sizes", ()), strict=False)
    return f"[{', '.join(f'{offset}:{offset + size}' for offset, size in pairs)}]"

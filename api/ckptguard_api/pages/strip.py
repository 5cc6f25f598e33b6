"""A run's last checkpoints as one line of marks, drawn by the server: it needs no script.

The symbols that it uses are in `marks.html`, once a page. What stands in titles comes from numbers and
enumerations alone, never from a name.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from markupsafe import Markup
from sqlalchemy import Row

from ckptguard.model.service import Lifecycle
from ckptguard_api.domain.marks import Mark, mark_of_kind
from ckptguard_api.repositories.run_board import NUM_COLUMNS_BEFORE_KIND

_SLOT: Final = 8
_HEIGHT: Final = 14
_TO_MINUTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What all marks of a kind have in common.

    Args:
        opening: Of its element, up to its place.
        said: In the title, between step and time.
        besides: Of a second element at the same place; empty: there is none.
    """

    mark: Mark
    opening: str
    said: str
    besides: str


def strip(rows: Sequence[Row[Any]]) -> Markup:
    """Return an SVG with one mark a checkpoint, oldest first.

    Args:
        rows: As `last_checkpoints` gives them.
    """
    width = _SLOT * max(1, len(rows))
    kinds = [_kind(*row[NUM_COLUMNS_BEFORE_KIND:]) for row in rows]
    drawn = "".join(
        _drawn(kind, row.step, row.created_at, _SLOT * place)
        for place, (row, kind) in enumerate(zip(rows, kinds, strict=True))
    )
    return Markup(  # noqa: S704 - of numbers and enumerations alone
        f'<svg class="strip" role="img" aria-label="{_summary(kinds)}" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}">{drawn}</svg>'
    )


def _drawn(kind: _Kind, step: int, created_at: datetime, left: int) -> str:
    saved = created_at.isoformat(" ")[:_TO_MINUTES]
    besides = f'{kind.besides}{left}"/>' if kind.besides else ""
    return (
        f'{kind.opening}{left}"><title>step {step:,} · {kind.said} · saved {saved} UTC</title></use>{besides}'
    )


@cache
def _kind(
    lifecycle: str,
    verdict: str | None,
    assurance: str | None,
    validation_state: str | None,
    is_quarantined: bool,  # noqa: FBT001 - as above
    is_suspect: bool,  # noqa: FBT001 - as above
) -> _Kind:
    mark = mark_of_kind(lifecycle, verdict, assurance, validation_state)
    is_left = lifecycle == Lifecycle.SUPERSEDED
    faint = ' class="left"' if is_left else ""
    facts = {mark.text: True, "superseded": is_left, "quarantined": is_quarantined, "suspect": is_suspect}
    return _Kind(
        mark=mark,
        opening=f'<use href="#mark-{mark.value}"{faint} x="',
        said=" · ".join(fact for fact, holds in facts.items() if holds),
        besides='<use href="#mark-held" x="' if is_quarantined or is_suspect else "",
    )


def _summary(kinds: Sequence[_Kind]) -> str:
    counts = Counter(kind.mark.text for kind in kinds).most_common()
    each = ", ".join(f"{number} {text}" for text, number in counts)
    return f"Last {len(kinds)} checkpoints: {each}" if kinds else "No checkpoint"

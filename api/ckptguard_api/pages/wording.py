"""Numbers and times as people read them; filters of the templates."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import Any, Final

from markupsafe import Markup

from ckptguard.cli.next_steps import shell_word
from ckptguard.cli.plain_text import bytes_text, printable, seconds_text
from ckptguard.model.report import TensorNumerics

NOTHING: Final = "\N{EN DASH}"
"""Shown where a fact is not known; never 0."""

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_SHORT_MAX: Final = 60


def size(count: float | None) -> str:
    """Return a length, e.g. `201.3 MB`."""
    return NOTHING if count is None else bytes_text(count)


def number(count: float | None) -> str:
    """Return a count with thousands apart."""
    if count is None:
        return NOTHING
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def seconds(value: float | None) -> str:
    """Return a duration, e.g. `3 min 07 s`, `2 h 05 min`, `12 days`."""
    if value is None:
        return NOTHING
    return f"{value / _DAY_S:.0f} days" if value >= 2 * _DAY_S else seconds_text(value)


def duration(value: float | None) -> str:
    """Return a time that somebody set, without idle digits: `30 s`, `0.5 s`, `90 min`, `7 days`."""
    if value is None:
        return NOTHING
    return f"{value:g} s" if value < 2 * _MINUTE_S else _whole(value)


def about(value: float) -> str:
    """Return a duration that is only estimated, e.g. `7 s`, `12 min`."""
    return _whole(value)


def rate(bytes_per_s: float | None) -> str:
    """Return a rate, e.g. `1.2 GB/s`."""
    return NOTHING if bytes_per_s is None else f"{bytes_text(bytes_per_s)}/s"


def usd(value: float | None) -> str:
    """Return a price, e.g. `$144,000`; cents below $100."""
    if value is None:
        return NOTHING
    return f"${value:,.2f}" if value < 100 else f"${value:,.0f}"  # noqa: PLR2004 - where cents stop to matter


def percent(part: float | None, whole: float | None) -> str:
    """Return a share, e.g. `42 %`."""
    return NOTHING if part is None or not whole else f"{100 * part / whole:.0f} %"


def utc(moment: datetime | None) -> str:
    """Return a moment, e.g. `2026-11-30 05:41:07 UTC`."""
    return NOTHING if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def ago(moment: datetime | None, now: datetime) -> Markup | str:
    """Return how long ago, or in how long, with the moment itself on hover."""
    if moment is None:
        return NOTHING
    away = (now - moment).total_seconds()
    text = f"{_whole(away)} ago" if away >= 0 else f"in {_whole(-away)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), utc(moment), text)


def name(text: str | None) -> str:
    """Return a name made harmless: control and direction marks are shown, never obeyed."""
    return NOTHING if text is None else printable(text, max_chars=2000)


def short(text: str | None) -> str:
    """Return a name as `name` does, its middle left out where it is long."""
    return NOTHING if text is None else printable(text, max_chars=_SHORT_MAX)


def words(code: str | None) -> str:
    """Return an enumeration's value as words, e.g. `crc mismatch`."""
    return NOTHING if code is None else str(code).replace("_", " ")


def json_lines(value: Any) -> str:  # noqa: ANN401 - a JSON value
    """Return a value as people read it; in ASCII, so that nothing in it turns text around."""
    return json.dumps(value, indent=2, sort_keys=True)


def real(value: float | None) -> str:
    """Return a measured number in few digits, e.g. `-0.0312`, `1.5e+08`, `NaN`."""
    if value is None:
        return NOTHING
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value), f"{value:.4g}")


def shape(sizes: Sequence[int]) -> str:
    """Return a tensor's shape, e.g. `[32, 4096]`; `scalar` for none."""
    return f"[{', '.join(map(str, sizes))}]" if sizes else "scalar"


def values(numerics: TensorNumerics | None) -> str:
    """Return what is to be said of a tensor's values."""
    if numerics is None:
        return "not measured"
    if not numerics.is_finite:
        has_nan = isnan(numerics.minimum) or isnan(numerics.maximum)
        return "\N{WARNING SIGN} NaN" if has_nan else "\N{WARNING SIGN} Inf"
    if numerics.is_zero:
        return "all zero"
    return "all denormal" if numerics.is_denormal else "finite"


def shell(text: str) -> str:
    """Return a name as one word of a shell command."""
    return shell_word(text)


def _whole(value: float) -> str:
    for unit_s, unit in ((_DAY_S, "days"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if value >= 2 * unit_s:
            return f"{value / unit_s:.0f} {unit}"
    return f"{value:.0f} s"


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        about,
        ago,
        duration,
        json_lines,
        name,
        number,
        percent,
        rate,
        real,
        seconds,
        shape,
        shell,
        short,
        size,
        usd,
        utc,
        values,
        words,
    )
}

"""What a store may be called, where it may lie, and what may be set for it."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ckptguard.errors import InvalidRequestError
from ckptguard.model.policy import StoreTimes
from ckptguard.storage.allowed_urls import canonical_url, unsafe_url_reasons

STORE_NAME_PATTERN: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
MAX_ROOT_BYTES: Final = 1000
"""Leaves as much for a path below it, and both together fit an index of PostgreSQL."""
MAX_STORES: Final = 1000
"""Of a project, removed ones too: every registration looks at all of them."""
MAX_SETTLE_S: Final = 3600.0
MAX_TOLERANCE_S: Final = 86_400.0
MIN_SCRUB_EVERY_S: Final = 60.0
MAX_SCRUB_EVERY_S: Final = 10 * 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What the checks of a store's checkpoints depend on.

    Args:
        times: Whether modification times are the writer's.
        settle_s: Seconds after which a missing or short file is looked at again.
        mtime_tolerance_s: Clock slack between files of one save.
        scrub_every_s: Validate again what was validated longer ago; None: never.

    Raises:
        InvalidRequestError: With every broken rule.
    """

    times: StoreTimes = StoreTimes.ORIGINAL
    settle_s: float = 30.0
    mtime_tolerance_s: float = 5.0
    scrub_every_s: float | None = None

    def __post_init__(self) -> None:
        """Hold all bounds."""
        problems = list(_settings_problems(self))
        if problems:
            msg = f"the store's settings break their rules: {'; '.join(problems)}"
            raise InvalidRequestError(msg, problems=problems)


def settings_values(settings: StoreSettings) -> dict[str, Any]:
    """Return the columns of `stores` that hold settings; also what the audit shows."""
    return {
        "times": settings.times.value,
        "settle_s": settings.settle_s,
        "mtime_tolerance_s": settings.mtime_tolerance_s,
        "scrub_every_s": settings.scrub_every_s,
    }


def accepted_root(name: str, url: str) -> str:
    """Return the canonical URL of a store's root.

    Raises:
        InvalidRequestError: With everything that is wrong with name and URL.
    """
    problems = list(_root_problems(name, url))
    if problems:
        msg = f"the store is refused: {'; '.join(problems)}"
        raise InvalidRequestError(msg, problems=problems)
    return canonical_url(url)


def _root_problems(name: str, url: str) -> Iterator[str]:
    if re.fullmatch(STORE_NAME_PATTERN, name) is None:
        yield f"/name: {name[:80]!r} is not of the form {STORE_NAME_PATTERN}"
    for reason in unsafe_url_reasons(url):
        yield f"/url: {reason}"
    if len(url.encode("utf-8", "surrogatepass")) > MAX_ROOT_BYTES:
        yield f"/url: more than {MAX_ROOT_BYTES} bytes long"


def _settings_problems(settings: StoreSettings) -> Iterator[str]:
    yield from _range_problems(settings.settle_s, 0, MAX_SETTLE_S, at="/settle_s")
    yield from _range_problems(settings.mtime_tolerance_s, 0, MAX_TOLERANCE_S, at="/mtime_tolerance_s")
    if settings.scrub_every_s is not None:
        yield from _range_problems(
            settings.scrub_every_s, MIN_SCRUB_EVERY_S, MAX_SCRUB_EVERY_S, at="/scrub_every_s"
        )


def _range_problems(value: float, low: float, high: float, *, at: str) -> Iterator[str]:
    if not (math.isfinite(value) and low <= value <= high):
        yield f"{at}: {value!r} is not in {low:g}..{high:g}"

"""Files of one save that name their rank or number: which of them should be there and are not."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

MAX_RANKS: Final = 100_000
"""Largest world that a file name may claim; the largest real jobs stay below."""

# verl: `model_world_size_2_rank_0.pt`; Hugging Face: `pytorch_model-00001-of-00004.bin`
_COUNTED: Final = (
    re.compile(
        r"(?P<head>.*world_size_)(?P<count>\d{1,6})(?P<middle>_rank_)(?P<number>\d{1,6})(?P<tail>\D*)"
    ),
    re.compile(
        r"(?P<head>.*-)(?P<number>\d{5,6})(?P<middle>-of-)(?P<count>\d{5,6})(?P<tail>\.(?:bin|pt|pth|ckpt))"
    ),
)
# DeepSpeed ZeRO: `bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt`; Accelerate: `random_states_1.pkl`
ZERO_RANK: Final = re.compile(
    r"(?P<head>.*zero_pp_rank_)(?P<number>\d{1,6})(?P<tail>_mp_rank_\d+_\w+_states\.pt)"
)
_NUMBERED: Final = (
    ZERO_RANK,
    re.compile(r"(?P<head>random_states_)(?P<number>\d{1,6})(?P<tail>\.pkl)"),
    re.compile(r"(?P<head>rng_state_)(?P<number>\d{1,6})(?P<tail>\.pth)"),
)
_IN_FOLDER: Final = {"train": (re.compile(r"(?P<head>rank)(?P<number>\d{1,6})(?P<tail>\.pt)"),)}
"""Names that mean ranks in a folder of this name only (OLMo-core)."""


def find_missing(names: Iterable[str], *, zero_ranks: int = 0, folder: str = "") -> tuple[str, ...]:
    """Name the files that the others imply: a rank of a stated world, a gap in a series.

    Args:
        names: Files directly in one folder.
        zero_ranks: Ranks that DeepSpeed's files themselves speak of; 0 where nothing is known.
        folder: Its name.

    Returns:
        Missing names, sorted. The last of a series whose length no name states cannot be missed,
        except where another series of the folder has it (ZeRO-3 model and optimizer states).
    """
    known = frozenset(names)
    expected = {*_counted(known), *_numbered(known, _series_in(folder), zero_ranks)}
    return tuple(sorted(expected - known))


def last_of_unstated(names: Iterable[str], *, zero_ranks: int = 0, folder: str = "") -> tuple[str, ...]:
    """Name the last file of each series of ranks whose length nothing states.

    Args:
        names: Files directly in one folder.
        zero_ranks: As in `find_missing`.
        folder: Its name.
    """
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for pattern in _series_in(folder):
        for match in filter(None, map(pattern.fullmatch, names)):
            if not (pattern is ZERO_RANK and zero_ranks):
                key, this = (match["head"], match["tail"]), (int(match["number"]), match[0])
                last[key] = max(last.get(key, this), this)
    return tuple(sorted(name for _, name in last.values()))


def _series_in(folder: str) -> tuple[re.Pattern[str], ...]:
    return (*_NUMBERED, *_IN_FOLDER.get(folder, ()))


def _counted(names: frozenset[str]) -> set[str]:
    expected: set[str] = set()
    for pattern in _COUNTED:
        for match in filter(None, map(pattern.fullmatch, names)):
            count, width = int(match["count"]), len(match["number"])
            is_rank = "rank" in match["middle"]
            first = 0 if is_rank else 1
            template = _sibling if is_rank else _numbered_sibling
            if count <= MAX_RANKS and template(match, first, width) not in expected:
                expected |= {template(match, number, width) for number in range(first, first + count)}
    return expected


def _sibling(match: re.Match[str], number: int, width: int) -> str:
    del width  # ranks are written without leading zeros
    return f"{match['head']}{match['count']}{match['middle']}{number}{match['tail']}"


def _numbered_sibling(match: re.Match[str], number: int, width: int) -> str:
    return f"{match['head']}{number:0{width}}{match['middle']}{match['count']}{match['tail']}"


def _numbered(names: frozenset[str], patterns: Iterable[re.Pattern[str]], zero_ranks: int) -> set[str]:
    expected: set[str] = set()
    for pattern in patterns:
        series: dict[tuple[str, str], int] = defaultdict(int)
        for match in filter(None, map(pattern.fullmatch, names)):
            key = match["head"], match["tail"]
            series[key] = max(series[key], int(match["number"]))
        stated = zero_ranks if pattern is ZERO_RANK and series else 0
        count = max(max(series.values(), default=-1) + 1, stated)
        if count <= MAX_RANKS:
            expected |= {f"{head}{number}{tail}" for head, tail in series for number in range(count)}
    return expected

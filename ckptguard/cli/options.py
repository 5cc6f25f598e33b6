"""What a user typed, turned into a policy; every refusal says what would be right."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ckptguard.cli.plain_text import printable
from ckptguard.errors import ConfigError
from ckptguard.model.policy import Depth, NumericsMode, Policy, Reader, StoreTimes

MAX_PROFILE_BYTES: Final = 16 << 20
ALL_STEPS: Final = "all"
_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_VERSION: Final = re.compile(r"(torch|python)=(\d{1,3})\.(\d{1,3})(?:\.\d+)?")


class LoadBy(StrEnum):
    """Who does the load of depth `load`."""

    OWN = "own"  # our verified reader, through torch.distributed.checkpoint
    STOCK = "stock"  # and then stock dcp.load itself


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The options of `check`, as typed."""

    depth: Depth = Depth.LOAD
    device: str = "cpu"
    profile: str | None = None
    numerics: NumericsMode = NumericsMode.REPORT
    reader: str | None = None
    load: LoadBy = LoadBy.OWN
    is_direct: bool = False
    settle: str | None = None
    is_mtime_ignored: bool = False
    times: StoreTimes = StoreTimes.ORIGINAL
    is_strict_objects: bool = False
    allow_global: tuple[str, ...] = ()
    jobs: int | None = None
    window: str | None = None
    deadline: str | None = None


def policy_of(options: CheckOptions) -> Policy:
    """Return the policy that the options ask for.

    Raises:
        ConfigError: An option cannot be understood, or contradicts another.
    """
    if options.load is LoadBy.STOCK and options.depth is not Depth.LOAD:
        msg = f"--load stock needs --depth load, not {options.depth.value}"
        raise ConfigError(msg)
    defaults = Policy()
    return Policy(
        depth=options.depth,
        numerics=options.numerics,
        is_strict_objects=options.is_strict_objects,
        allowed_globals=frozenset(options.allow_global),
        reader=None if options.reader is None else parse_reader(options.reader),
        settle_s=defaults.settle_s if options.settle is None else parse_duration("--settle", options.settle),
        times=options.times,
        is_mtime_ignored=options.is_mtime_ignored,
        required_fqns=parse_profile(options.profile) if options.profile is not None else (),
        window_bytes=(
            defaults.window_bytes if options.window is None else parse_length("--window", options.window)
        ),
        jobs=options.jobs,
        device=parse_device(options.device),
        is_direct=options.is_direct,
        is_stock_load=options.load is LoadBy.STOCK,
        deadline_s=None if options.deadline is None else parse_duration("--deadline", options.deadline),
    )


def parse_length(option: str, text: str) -> int:
    """Parse bytes: `1073741824`, `256MiB`, `1G` (powers of 1024 either way: these are buffers).

    Raises:
        ConfigError: It is not a length, or nothing.
    """
    match = _LENGTH.fullmatch(text.strip())
    length = int(float(match[1]) * 1024 ** _POWERS[match[2].upper()]) if match else 0
    if length <= 0:
        msg = f"{option} takes a length like 256MiB or 1GiB, not {printable(text)!r}"
        raise ConfigError(msg)
    return length


def parse_duration(option: str, text: str) -> float:
    """Parse seconds: `30`, `2.5`, `90s`, `10m`, `2h`.

    Raises:
        ConfigError: It is not a duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        msg = f"{option} takes seconds, or a duration like 90s, 10m or 2h, not {printable(text)!r}"
        raise ConfigError(msg)
    return float(match[1]) * _SECONDS[match[2]]


def parse_reader(text: str) -> Reader:
    """Parse `torch=2.13,python=3.11`; either may be left out.

    Raises:
        ConfigError: Another name, a version without two numbers, or a name twice.
    """
    versions: dict[str, tuple[int, int]] = {}
    for word in text.split(","):
        match = _VERSION.fullmatch(word.strip())
        if match is None or match[1] in versions:
            msg = f"--reader takes torch=2.13,python=3.11, not {printable(text)!r}"
            raise ConfigError(msg)
        versions[match[1]] = (int(match[2]), int(match[3]))
    return Reader(torch=versions.get("torch"), python=versions.get("python"))


def parse_device(text: str) -> str:
    """Parse `cpu`, `cuda` or `cuda:N`.

    Raises:
        ConfigError: Anything else.
    """
    if re.fullmatch(r"cpu|cuda(:\d{1,3})?", text) is None:
        msg = f"--device takes cpu, cuda or cuda:0, not {printable(text)!r}"
        raise ConfigError(msg)
    return text


def parse_profile(text: str) -> tuple[str, ...]:
    """Parse `--profile`: a file with one pattern on a line (`#` starts a comment), or patterns.

    Raises:
        ConfigError: The file cannot be read, or there is no pattern.
    """
    file = Path(text)
    patterns = _patterns_of(file) if file.is_file() else [word.strip() for word in text.split(",")]
    kept = tuple(pattern for pattern in patterns if pattern)
    if not kept:
        msg = f"--profile holds no pattern: {printable(text)}"
        raise ConfigError(msg)
    return kept


def _patterns_of(file: Path) -> list[str]:
    try:
        if file.stat().st_size > MAX_PROFILE_BYTES:
            msg = f"--profile {printable(str(file))} is larger than {MAX_PROFILE_BYTES} bytes"
            raise ConfigError(msg)
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"--profile {printable(str(file))} cannot be read: {error}"
        raise ConfigError(msg) from error
    return [line.partition("#")[0].strip() for line in text.splitlines()]


def parse_step(text: str) -> int:
    """Parse the number of a step.

    Raises:
        ConfigError: It is not a number.
    """
    if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None:
        msg = f"--step takes a number or {ALL_STEPS!r}, not {printable(text)!r}"
        raise ConfigError(msg)
    return int(text)

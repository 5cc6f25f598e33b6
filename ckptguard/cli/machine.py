"""What this machine offers to a check: looked at, never changed."""

import importlib.util
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from ckptguard.cli.plain_text import bytes_text
from ckptguard.model.policy import GIB

_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_NO_LIMIT_FROM: Final = 1 << 60
"""cgroup v1 writes a number near 2**63 for "none"."""


class Health(StrEnum):
    """What a row means."""

    OK = "ok"
    ABSENT = "absent"  # something cannot be done, the rest can
    BAD = "BAD"  # checks cannot run, or run into trouble


class Row(NamedTuple):
    """One thing looked at.

    Args:
        name: What.
        health: What it means.
        value: What is there.
        consequence: What cannot be done without, and the command that changes it.
    """

    name: str
    health: Health
    value: str
    consequence: str = ""


DRIVERS: Final = (
    ("s3fs", "s3://", "pip install 'ckptguard[s3]'"),
    ("gcsfs", "gs://", "pip install gcsfs"),
    ("adlfs", "az://", "pip install adlfs"),
    ("aiohttp", "https://", "pip install aiohttp"),
)
"""Package, the addresses it opens, how to get it."""


def look_at_machine(folder: Path) -> Iterator[Row]:
    """Yield all rows that need no child process.

    Args:
        folder: Whose disk is looked at.
    """
    yield _python()
    yield _package("torch", "no check `load`: pip install 'ckptguard[canary]'")
    yield _package("zstandard", "zstd items stay unproven: pip install 'ckptguard[zstd]'")
    for package, scheme, command in DRIVERS:
        yield _package(package, f"no {scheme} addresses: {command}", name=f"driver {scheme}")
    yield _cores()
    yield _memory()
    yield _space("disk", folder, needed_bytes=0)
    yield _space("/dev/shm", Path("/dev/shm"), needed_bytes=64 << 20)  # noqa: S108 - looked at, not written
    yield from _corpus()


def installed_version(package: str) -> str | None:
    """Return the version of an installed package without importing it."""
    try:
        return version(package) if importlib.util.find_spec(package) else None
    except PackageNotFoundError:
        return "unknown version"


def _python() -> Row:
    return Row("python", Health.OK, f"{platform.python_version()} at {sys.executable}")


def _package(package: str, consequence: str, *, name: str | None = None) -> Row:
    found = installed_version(package)
    if found is None:
        return Row(name or package, Health.ABSENT, "not installed", consequence)
    return Row(name or package, Health.OK, found if name is None else f"{package} {found}")


def _cores() -> Row:
    return Row("cores", Health.OK, f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}")


def _memory() -> Row:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = {"machine": total, **dict(memory_limits(_CGROUP_LIMITS))}
    name, least = min(limits.items(), key=lambda limit: limit[1])
    value = f"{bytes_text(least)} ({name})"
    if least < 2 * GIB:
        return Row("memory", Health.BAD, value, "check with --window 128MiB --jobs 1")
    return Row("memory", Health.OK, value)


def memory_limits(files: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """Yield the limits that this process runs under, in bytes, by where they come from."""
    for file in files:
        text = file.read_text(encoding="ascii").strip() if file.is_file() else ""
        if text.isdigit() and int(text) < _NO_LIMIT_FROM:
            yield "cgroup", int(text)
    for name, kind in (("RLIMIT_AS", resource.RLIMIT_AS), ("RLIMIT_DATA", resource.RLIMIT_DATA)):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            yield name, soft


def _space(name: str, folder: Path, *, needed_bytes: int) -> Row:
    if not folder.is_dir():
        return Row(name, Health.ABSENT, "not there", "a load on several ranks may need it")
    free = shutil.disk_usage(folder).free
    value = f"{bytes_text(free)} free"
    if free < needed_bytes:
        return Row(name, Health.ABSENT, value, "a load on several ranks may need more")
    return Row(name, Health.OK, value)


def _corpus() -> Iterator[Row]:
    setting = os.environ.get("CKPTGUARD_CORPUS")
    if setting is not None:
        health = Health.OK if Path(setting).is_dir() else Health.BAD
        consequence = "" if health is Health.OK else "CKPTGUARD_CORPUS names no folder; `make test` fails"
        yield Row("corpus", health, setting, consequence)

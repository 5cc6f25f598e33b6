"""Which software judged, and which will load."""

import importlib.util
import platform

import ckptguard
from ckptguard.checks.version import CHECKS_VERSION
from ckptguard.model.policy import Reader
from ckptguard.operations.reading import Reading


def canary_as_reader(reading: Reading) -> Reader:
    """Return the canary's own versions: who will load, where the user names nobody else."""
    versions = reading.outcome.versions if reading.outcome is not None else {}
    return Reader(
        torch=_major_minor(versions.get("torch")),
        python=_major_minor(versions.get("python", platform.python_version())),
    )


def _major_minor(version: str | None) -> tuple[int, int] | None:
    if version is None:
        return None
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def has_module(name: str) -> bool:
    """Say whether this environment, and so the canary's, has a top-level package."""
    try:
        return name != "__main__" and importlib.util.find_spec(name) is not None
    except ValueError:  # no name that a module can have
        return False


def versions_of(reading: Reading) -> dict[str, str]:
    """Return the versions that a report names."""
    of_canary = dict(reading.outcome.versions) if reading.outcome is not None else {}
    own = {"ckptguard": ckptguard.__version__, "checks": CHECKS_VERSION, "python": platform.python_version()}
    return own | of_canary

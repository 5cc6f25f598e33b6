"""What a worker tells the service that it can do."""

import importlib.metadata
import platform
from collections.abc import Iterable
from typing import Any

import ckptguard
from ckptguard.formats.registry import adapters
from ckptguard.model.policy import Depth


def capabilities_of(*, stores: Iterable[str], device: str, world_size: int) -> dict[str, Any]:
    """Return `capabilities` of docs/service.md; without torch nothing is loaded here."""
    torch = _version("torch")
    depths = [depth.value for depth in Depth if torch is not None or depth is not Depth.LOAD]
    return {
        "stores": sorted(stores),
        "depths": depths,
        "devices": [device],
        "formats": sorted({adapter.name for adapter in adapters()}),
        "torch": torch,
        "python": platform.python_version(),
        "ckptguard": ckptguard.__version__,
        "world_size": world_size,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

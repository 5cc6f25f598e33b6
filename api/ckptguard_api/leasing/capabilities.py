"""What a worker says that it can do."""

from dataclasses import asdict, dataclass
from typing import Any

from ckptguard_api.domain.storable_text import storable_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """As docs/service.md, "Worker", has them; lists are bounded at the route.

    Args:
        stores: Names of stores that the worker maps to a root of its own.
        depths: How far it can go; empty: anything.
    """

    stores: tuple[str, ...]
    depths: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    torch: str | None = None
    python: str | None = None
    ckptguard: str | None = None
    world_size: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that any database can hold."""
        value: dict[str, Any] = storable_json(asdict(self))
        return value

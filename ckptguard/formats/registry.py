"""Which format adapters are installed, in the order in which they are asked."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from ckptguard.errors import ConfigError
from ckptguard.formats.protocol import FormatAdapter

GROUP: Final = "ckptguard.formats"
_FIRST: Final = ("dcp", "safetensors", "torch_save")


def adapters(found: Iterable[EntryPoint] | None = None) -> tuple[FormatAdapter, ...]:
    """Load every adapter of the entry-point group.

    Args:
        found: Entry points to load instead of the installed ones.

    Returns:
        `dcp`, `safetensors`, `torch_save`, then all others by name.

    Raises:
        ConfigError: One cannot be loaded, is no adapter, or two share a name.
    """
    points = set(entry_points(group=GROUP) if found is None else found)
    loaded = [_load(point) for point in sorted(points, key=_precedence)]
    names = [adapter.name for adapter in loaded]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        msg = f"two installed format adapters are named {repeated[0]!r}"
        raise ConfigError(msg)
    return tuple(loaded)


def _precedence(point: EntryPoint) -> tuple[int, str, str]:
    position = _FIRST.index(point.name) if point.name in _FIRST else len(_FIRST)
    return position, point.name, point.value


def _load(point: EntryPoint) -> FormatAdapter:
    try:
        adapter = point.load()
    except Exception as error:  # foreign code runs here, and must not look like damage
        msg = f"format adapter {point.name!r} ({point.value}) cannot be loaded: {error!r}"
        raise ConfigError(msg) from error
    is_adapter = all(callable(getattr(adapter, method, None)) for method in ("recognises", "open"))
    if not is_adapter or getattr(adapter, "name", None) != point.name:
        msg = f"{point.value} is not a format adapter named {point.name!r}"
        raise ConfigError(msg)
    checked: FormatAdapter = adapter
    return checked

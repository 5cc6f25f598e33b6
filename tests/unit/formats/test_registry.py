"""The order of adapters, and what happens to a broken one."""

from importlib.metadata import EntryPoint

import pytest

from ckptguard.errors import ConfigError
from ckptguard.formats.registry import GROUP, adapters


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=GROUP)


class Fake:
    """Has the shape of an adapter."""

    def __init__(self, name: str) -> None:
        self.name = name

    def recognises(self, listing: object) -> bool:
        """Answer something."""
        return listing is None

    def open(self, store: object, listing: object, limits: object) -> tuple[object, ...]:
        """Return something."""
        return (store, listing, limits)


DCP, ZARR, ALPHA = Fake("dcp"), Fake("zarr"), Fake("alpha")
NOT_AN_ADAPTER = object()


def test_own_adapters_come_first_and_the_others_by_name() -> None:
    found = [point(name, f"{__name__}:{name.upper()}") for name in ("zarr", "alpha", "dcp")]
    assert [adapter.name for adapter in adapters(found)] == ["dcp", "alpha", "zarr"]


def test_the_same_adapter_found_twice_counts_once() -> None:
    assert len(adapters([point("dcp", f"{__name__}:DCP")] * 2)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("zarr", "no_such_package.at_all:ADAPTER"),
        ("zarr", f"{__name__}:NO_SUCH_NAME"),
        ("zarr", f"{__name__}:NOT_AN_ADAPTER"),
        ("zarr", f"{__name__}:ALPHA"),
    ],
)
def test_a_broken_adapter_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        adapters([point(name, value)])


def test_two_adapters_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two installed"):
        adapters([point("dcp", f"{__name__}:DCP"), point("dcp", f"{__name__}:DCP ")])

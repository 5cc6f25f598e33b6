"""Where a checkpoint is: for this process, and for the canary child, which opens the store itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

from ckptguard.storage.open_url import open_location
from ckptguard.storage.protocol import Store

_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder in a store, and how another process reaches the same one.

    Args:
        store: Asked by this process, as it is: whoever wants requests retried hands in a
            `RetryingStore`.
        prefix: The folder, relative to the store's root.
        target: What `open_location` takes to reach the same store, with the same root, in
            the child. Told in the report.
        root: Further argument of `open_location`: the folder that links may not leave.
        options: Further argument of `open_location`: endpoint and credentials of this store;
            JSON values. They reach the child through its standard input, never the report.
    """

    store: Store
    prefix: str
    target: str
    root: Path | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, target: str, *, root: Path | None = None, options: Mapping[str, object] = _NO_OPTIONS
    ) -> Self:
        """Open what a user typed.

        Raises:
            ConfigError, StoreError: As `open_location`.
        """
        store, prefix = open_location(target, root=root, options=options)
        return cls(store=store, prefix=prefix, target=target, root=root, options=options)

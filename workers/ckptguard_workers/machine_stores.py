"""The stores of this machine: each name mapped to a root of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ckptguard.errors import ConfigError
from ckptguard.model.service import EVERY_STORE
from ckptguard.storage.allowed_urls import refuse_unsafe_url


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStore:
    """A store as this machine reaches it.

    Args:
        url: Its root; None: as the service has it.
        options: Endpoint and credentials: they go to the children of its own validations only.
        s3_options: Further ones, for a store that lies in S3.
    """

    url: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    s3_options: Mapping[str, object] = field(default_factory=dict, repr=False)

    def options_for(self, url: str) -> Mapping[str, object]:
        """Return what opens it at this root."""
        return {**self.s3_options, **self.options} if url.startswith("s3://") else self.options


def parse_stores(
    texts: Iterable[str],
    options: Mapping[str, Mapping[str, object]] | None = None,
    *,
    s3_options: Mapping[str, object] | None = None,
) -> dict[str, MachineStore]:
    """Read `NAME=URL`, or `NAME` alone for a store that lies here where the service has it, `*` for all such.

    Args:
        texts: One a store.
        options: By name; they replace `s3_options`.
        s3_options: Of every store in S3.

    Raises:
        ConfigError: Not of this form, a name twice, a URL that is not opened, or options of no store.
    """
    stores: dict[str, MachineStore] = {}
    for text in texts:
        name, has_url, url = text.strip().partition("=")
        if not name or name in stores or (has_url and name == EVERY_STORE):
            msg = f"a store is NAME=URL, each name once: {text!r}"
            raise ConfigError(msg)
        if has_url:
            refuse_unsafe_url(url)
        own = (options or {}).get(name)
        stores[name] = MachineStore(
            url=url if has_url else None,
            options=own or {},
            s3_options=(s3_options or {}) if own is None else {},
        )
    strangers = sorted((options or {}).keys() - stores.keys())
    if strangers:
        msg = f"options of stores that are not mapped: {', '.join(strangers)}"
        raise ConfigError(msg)
    return stores

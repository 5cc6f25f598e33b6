"""What `serve` was asked to do, held against itself before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from ckptguard.errors import ConfigError
from ckptguard_api.serving.listening import Listener
from ckptguard_api.settings import Settings

_DATABASES: Final = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """A whole service.

    Args:
        settings: Environment and options together.
        listener: Where it listens.
        public_url: What clients and the worker call it; None: derived from the listener.
        num_processes: Of the API.
        has_worker: Whether to start one.
        is_migration_wanted: Bring a PostgreSQL database to this version.
        is_new_token_wanted: Make another admin token.
        is_for_person: Somebody reads standard error: few lines there, all logs in the data folder.

    Raises:
        ConfigError: Two of these cannot be together; says which and what to do.
    """

    settings: Settings
    listener: Listener
    public_url: str | None = None
    num_processes: int = 1
    has_worker: bool = True
    is_migration_wanted: bool = False
    is_new_token_wanted: bool = False
    is_for_person: bool = False

    def __post_init__(self) -> None:
        """Hold the rules."""
        kind = _database_kind(self.settings.database_address)
        if kind not in _DATABASES:
            msg = f"a database of kind {kind!r}; sqlite and postgresql+psycopg are supported"
            raise ConfigError(msg)
        if self.num_processes > 1 and not self.is_postgresql:
            msg = (
                "--api-processes needs PostgreSQL (CKPTGUARD_DATABASE_URL=postgresql+psycopg://…): "
                "an SQLite file belongs to one process"
            )
            raise ConfigError(msg)
        if self.has_worker and self.listener.has_tls and not self.public_url and _is_ip(self.listener.host):
            msg = (
                "the worker must call this service by a name that its certificate holds: give "
                "--public-url https://NAME:PORT, or --no-worker"
            )
            raise ConfigError(msg)

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is a server of its own."""
        return _database_kind(self.settings.database_address) == "postgresql"


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Return the settings: options where given, else the environment, else defaults.

    Raises:
        ConfigError: With every setting that cannot be used.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(step) for step in fault['loc'])}: {fault['msg']}" for fault in error.errors()
        )
        msg = f"settings cannot be used: {faults}"
        raise ConfigError(msg) from error


def stores_of(options: Sequence[str]) -> dict[str, str] | None:
    """Return stores by name from `NAME=URL`, or None where there is none.

    Raises:
        ConfigError: An option is not of this form, or a name stands twice.
    """
    stores: dict[str, str] = {}
    for option in options:
        name, separator, url = option.partition("=")
        if not (separator and name and url):
            msg = f"--store {option}: give NAME=URL, e.g. --store ckpts=/data/checkpoints"
            raise ConfigError(msg)
        if name in stores:
            msg = f"--store {name}: the name stands twice"
            raise ConfigError(msg)
        stores[name] = url
    return stores or None


def _database_kind(url: str) -> str:
    try:
        return make_url(url).get_backend_name()
    except ArgumentError as error:
        msg = "the database's address is no URL, e.g. postgresql+psycopg://user@host/name"
        raise ConfigError(msg) from error


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True

"""Settings of the service: environment variables `CKPTGUARD_…`, overridden by options of `serve`."""

from ipaddress import ip_network
from os.path import normpath, realpath
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ckptguard.errors import ConfigError


class Settings(BaseSettings):
    """Everything that an operator may set; docs/operations.md explains each.

    Args:
        data_dir: SQLite file, address and token of an embedded service.
        database_url: Where state lives; None: SQLite in `data_dir`.
        database_url_file: File that holds the URL, e.g. a mounted secret; read where there is no URL.
        stores: `name=url,name=url`, allowed in project `default`.
        retry_first_s: A verdict that time may change is asked for again after this; then twice as long, ...
        retry_max_s: ... up to this.
        max_retries: Of one checkpoint in a row; 0: never by itself.
        metrics_public: `/metrics` needs no token.
        metrics_active_days: Runs without a save for longer have no metrics of their own.
        metrics_max_runs: Runs with metrics of their own, at most; those saved last.
        webhook_allowed_networks: `10.1.0.0/16,127.0.0.1/32`: private addresses that webhooks may go to.
        webhook_timeout_s: One delivery takes this long at most.
    """

    model_config = SettingsConfigDict(env_prefix="CKPTGUARD_", extra="ignore", frozen=True)

    data_dir: Path = Path("ckptguard-data")
    database_url: SecretStr | None = None
    database_url_file: Path | None = None
    stores: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    lease_s: float = 60.0
    heartbeat_every_s: float = 10.0
    stall_after_s: float = 300.0
    max_counted_attempts: int = 3
    retry_first_s: float = Field(default=60.0, gt=0)
    retry_max_s: float = Field(default=3600.0, gt=0)
    max_retries: int = Field(default=10, ge=0)
    worker_heard_within_s: float = 60.0
    metrics_public: bool = False
    metrics_active_days: float = 7.0
    metrics_max_runs: int = 1000
    webhook_allowed_networks: Annotated[tuple[str, ...], NoDecode] = ()
    webhook_timeout_s: float = 10.0

    @field_validator("stores", mode="before")
    @classmethod
    def _stores(cls, value: object) -> object:
        if isinstance(value, str):
            pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
            if not all(name and url for name, _, url in pairs):
                msg = "not of the form name=url,name=url"
                raise ValueError(msg)
            value = {name: url for name, _, url in pairs}
        if not isinstance(value, dict):
            return value
        return {name: url if "://" in url else str(Path(url).absolute()) for name, url in value.items()}

    @field_validator("webhook_allowed_networks", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return value
        return tuple(str(ip_network(part.strip())) for part in parts if part.strip())

    @property
    def database_address(self) -> str:
        """URL of the database, as SQLAlchemy takes it; it may hold a password.

        Raises:
            ConfigError: The file that should hold it cannot be read.
        """
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        if self.database_url_file is not None:
            return _text_of(self.database_url_file)
        return f"sqlite:///{self.data_dir / 'ckptguard.sqlite'}"

    @property
    def own_folders(self) -> tuple[str, ...]:
        """URLs of the data folder: as it is named, and where its links lead."""
        named = normpath(self.data_dir.absolute())
        return tuple(dict.fromkeys(f"file://{path}" for path in (named, realpath(named))))

    @property
    def is_embedded(self) -> bool:
        """Whether state lives in a file of the data folder."""
        return self.database_url is None and self.database_url_file is None


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        msg = f"CKPTGUARD_DATABASE_URL_FILE={file} cannot be read: {type(error).__name__}"
        raise ConfigError(msg) from error

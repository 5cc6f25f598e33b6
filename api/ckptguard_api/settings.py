"""Settings of the service: environment variables `CKPTGUARD_…`, overridden by options of `serve`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Settings(BaseSettings):
    """Everything that an operator may set; docs/operations.md explains each.

    Args:
        data_dir: SQLite file, address and token of an embedded service.
        database_url: Where state lives; None: SQLite in `data_dir`.
        stores: `name=url,name=url`, allowed in project `default`.
    """

    model_config = SettingsConfigDict(env_prefix="CKPTGUARD_", extra="ignore", frozen=True)

    data_dir: Path = Path("ckptguard-data")
    database_url: SecretStr | None = None
    stores: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    lease_s: float = 60.0
    heartbeat_every_s: float = 10.0
    stall_after_s: float = 300.0
    max_counted_attempts: int = 3
    worker_heard_within_s: float = 60.0

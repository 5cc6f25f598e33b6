"""The folder of one embedded service: its lock, the token of its operator, its address."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ckptguard.errors import ConfigError
from ckptguard_api.domain.tokens import is_token_shaped


class DataFolder:
    """A folder that only its owner can read.

    Args:
        path: Made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def token_file(self) -> Path:
        """Holds the admin token that the first start made."""
        return self.path / "token"

    @property
    def address_file(self) -> Path:
        """Says where the service listens; there while it lives."""
        return self.path / "address.json"

    @property
    def log_file(self) -> Path:
        """Holds the logs of a service whose terminal a person reads."""
        return self.path / "serve.log"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the kernel lets go when it dies.

        Raises:
            ConfigError: Another service has it, or it cannot be written.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            msg = f"the data folder {self.path} cannot be used: {error.strerror}"
            raise ConfigError(msg) from error
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            msg = (
                f"another `ckptguard serve` (pid {holder or 'unknown'}) uses the data folder {self.path}: "
                "stop it, or give --data-dir FOLDER"
            )
            raise ConfigError(msg) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def read_token(self) -> str | None:
        """Return the token, if the file holds one."""
        with suppress(FileNotFoundError):
            text = self.token_file.read_text("ascii", errors="replace").strip()
            return text if is_token_shaped(text) else None
        return None

    def write_token(self, token: str) -> None:
        """Keep a token; nobody else can read it at any moment."""
        self._write(self.token_file, f"{token}\n".encode())

    def write_address(self, address: dict[str, Any]) -> None:
        """Say where the service listens, all at once."""
        self._write(self.address_file, json.dumps(address).encode())

    def remove_address(self) -> None:
        """Say that it listens no more."""
        self.address_file.unlink(missing_ok=True)

    def _write(self, file: Path, body: bytes) -> None:
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o600)  # whatever umask, or an older draft, said
            stream.write(body)
            stream.flush()
            os.fsync(descriptor)
        draft.replace(file)

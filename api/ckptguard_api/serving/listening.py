"""Where the service listens, and whether a token may travel there."""

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptguard.errors import ConfigError

_BACKLOG: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What to listen on.

    Args:
        host: Name or address.
        port: 0: a free one.
        tls_cert: PEM file of the certificate chain.
        tls_key: PEM file of its key.
        is_tls_terminated_by_proxy: Whatever is between clients and here encrypts.

    Raises:
        ConfigError: A token would cross a network unencrypted, or a file is missing; says what to do.
    """

    host: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    is_tls_terminated_by_proxy: bool = False

    def __post_init__(self) -> None:
        """Hold the rules."""
        if (self.tls_cert is None) != (self.tls_key is None):
            msg = "--tls-cert and --tls-key belong together"
            raise ConfigError(msg)
        for file in (self.tls_cert, self.tls_key):
            if file is not None and not file.is_file():
                msg = f"no such file: {file}"
                raise ConfigError(msg)
        if not (self.has_tls or self.is_tls_terminated_by_proxy or _is_loopback(self.host)):
            msg = (
                f"{self.host} can be reached by other machines, and tokens would cross the network "
                "unencrypted: give --tls-cert FILE --tls-key FILE, or --tls-terminated-by-proxy where a "
                "proxy in front encrypts, or listen on 127.0.0.1"
            )
            raise ConfigError(msg)

    @property
    def has_tls(self) -> bool:
        """Whether this process encrypts."""
        return self.tls_cert is not None

    def url(self, port: int) -> str:
        """Return the address under which this machine reaches it."""
        scheme = "https" if self.has_tls else "http"
        host = _LOCAL_NAME.get(self.host, self.host)
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def open(self) -> socket.socket:
        """Bind and listen; connections wait from now on.

        Raises:
            ConfigError: The address is taken, or not of this machine.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            msg = f"cannot listen on {self.host} port {self.port}: {error.strerror or error}"
            raise ConfigError(msg) from error


_LOCAL_NAME: Final = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - not to bind


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

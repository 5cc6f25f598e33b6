"""Where the service is and who asks: from the environment, or from the data folder of `serve`."""

import ipaddress
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ckptguard.client.bearer import Token
from ckptguard.errors import ConfigError, StoreError
from ckptguard.storage.os_errors import translating_os_errors
from ckptguard.storage.redaction import redacted

URL_VARIABLE: Final = "CKPTGUARD_URL"
TOKEN_VARIABLE: Final = "CKPTGUARD_TOKEN"  # noqa: S105 - a name
TOKEN_FILE_VARIABLE: Final = "CKPTGUARD_TOKEN_FILE"  # noqa: S105 - a name
DATA_DIR_VARIABLE: Final = "CKPTGUARD_DATA_DIR"
PROJECT_VARIABLE: Final = "CKPTGUARD_PROJECT"
ALLOW_HTTP_VARIABLE: Final = "CKPTGUARD_ALLOW_HTTP"
DEFAULT_DATA_DIR: Final = "ckptguard-data"
ADDRESS_FILE: Final = "address.json"
_MAX_FILE_BYTES: Final = 64 << 10
_OTHERS_MAY_READ: Final = stat.S_IRGRP | stat.S_IROTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One service, and the right to ask it.

    Args:
        url: `https://host[:port][/prefix]`, without a closing `/`.
        token: Of the caller.
        project: Sent as `Ckptguard-Project`; None: the token's own, or `default`.
        source: Where it was found, for a person.
        warnings: What a person should change, one sentence each.
    """

    url: str
    token: Token = field(repr=False)
    project: str | None = None
    source: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, url: str, token: str, *, project: str | None = None, is_http_allowed: bool = False
    ) -> "Address":
        """Check and hold an address.

        Args:
            url: As a person wrote it.
            token: As the service made it.
            project: To act in.
            is_http_allowed: Allow `http://` beyond this machine: whoever listens has the token.

        Raises:
            ConfigError: The URL or the token cannot be used.
        """
        checked = parse_service_url(url, is_http_allowed=is_http_allowed)
        return cls(url=checked, token=Token(token), project=project)


def parse_service_url(url: str, *, is_http_allowed: bool) -> str:
    """Return the URL without its closing `/`.

    Raises:
        ConfigError: Not an http(s) URL of a host; with user, query or fragment; or `http://` to
            another machine, which is refused because a token would cross the network in the clear.
    """
    shown = redacted(url)
    try:
        parts = urlsplit(url)
        port_is_good = parts.port != 0
    except ValueError as error:
        msg = f"not a URL: {shown}"
        raise ConfigError(msg) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_good:
        msg = f"the address of a service is https://HOST:PORT, or http:// on this machine, not {shown}"
        raise ConfigError(msg)
    if parts.username is not None or parts.query or parts.fragment or not url.isprintable() or " " in url:
        msg = f"the address of a service has no user, query or fragment: {shown}"
        raise ConfigError(msg)
    if parts.scheme == "http" and not (is_http_allowed or _is_loopback(parts)):
        msg = (
            f"{shown} would send the token unencrypted to another machine: use https://, or set "
            f"{ALLOW_HTTP_VARIABLE}=1 where the network itself is protected"
        )
        raise ConfigError(msg)
    return url.rstrip("/")


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_service(environment: Mapping[str, str], *, folder: Path) -> Address:
    """Find the address and the token.

    Both from `CKPTGUARD_URL` and `CKPTGUARD_TOKEN` or `CKPTGUARD_TOKEN_FILE`; what is not set
    there, from `address.json` in the data folder, which `ckptguard serve` writes.

    Args:
        environment: Of the process.
        folder: Where `ckptguard-data` is looked for if `CKPTGUARD_DATA_DIR` is not set.

    Raises:
        ConfigError: Nothing was found (says what to do), or what was found cannot be used.
    """
    data_dir = Path(environment.get(DATA_DIR_VARIABLE) or folder / DEFAULT_DATA_DIR)
    is_http_allowed = environment.get(ALLOW_HTTP_VARIABLE) == "1"
    url = environment.get(URL_VARIABLE)
    served = _served(data_dir) if not url or not _names_token(environment) else None
    if not url:
        if served is None:
            raise ConfigError(_nothing_found(data_dir))
        url = served.url
    checked = parse_service_url(url, is_http_allowed=is_http_allowed)
    if not environment.get(URL_VARIABLE) and not environment.get(DATA_DIR_VARIABLE):
        _require_harmless(checked, environment, file=data_dir / ADDRESS_FILE)
    # A token of the data folder goes only to the service that put it there.
    token, source, warnings = _token(
        environment, served if served and served.url == url.rstrip("/") else None
    )
    return Address(
        url=checked,
        token=token,
        project=environment.get(PROJECT_VARIABLE) or None,
        source=source,
        warnings=warnings,
    )


def _require_harmless(url: str, environment: Mapping[str, str], *, file: Path) -> None:
    """Hold that a folder which nobody named sends no token of the environment to another machine.

    Whoever made what lies in the working folder, by an archive or a checkout, may have made that file too.
    """
    if _names_token(environment) and not _is_loopback(urlsplit(url)):
        msg = (
            f"{file} would have the token of the environment sent to {redacted(url)}: set {URL_VARIABLE}, "
            f"or {DATA_DIR_VARIABLE}, if it is meant"
        )
        raise ConfigError(msg)


def _names_token(environment: Mapping[str, str]) -> bool:
    return bool(environment.get(TOKEN_VARIABLE) or environment.get(TOKEN_FILE_VARIABLE))


def _nothing_found(data_dir: Path) -> str:
    return (
        f"no service is known: set {URL_VARIABLE} and {TOKEN_VARIABLE}, or start one here with "
        f"`ckptguard serve --store NAME=PATH` (looked for {data_dir / ADDRESS_FILE}; "
        f"{DATA_DIR_VARIABLE} names another folder)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    url: str
    token_file: Path


def _served(data_dir: Path) -> _Served | None:
    """Read what `serve` left in its data folder; None if nothing is there.

    Raises:
        ConfigError: The file is another user's, or does not say where a service is. It names a
            file whose content is sent to an address: only its owner may decide that.
    """
    file = data_dir / ADDRESS_FILE
    try:
        value = json.loads(_read_owned(file))
        url, named = value["url"], Path(value["token_file"])
        token_file = named if named.is_absolute() else data_dir / named
        served = _Served(url=url.rstrip("/"), token_file=token_file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{file} does not say where a service is: {error}; start `ckptguard serve` again"
        raise ConfigError(msg) from error
    if not token_file.resolve().is_relative_to(data_dir.resolve()):
        msg = f"{file} names a token file outside its own folder: {token_file}"
        raise ConfigError(msg)
    return served


def _read_owned(file: Path) -> bytes:
    with file.open("rb") as stream:
        owner = os.fstat(stream.fileno()).st_uid
        if owner not in {os.getuid(), 0}:
            msg = f"it belongs to another user (uid {owner})"
            raise ValueError(msg)
        return stream.read(_MAX_FILE_BYTES)


def _token(environment: Mapping[str, str], served: _Served | None) -> tuple[Token, str, tuple[str, ...]]:
    if text := environment.get(TOKEN_VARIABLE):
        return Token(text), TOKEN_VARIABLE, ()
    if name := environment.get(TOKEN_FILE_VARIABLE):
        token, warnings = read_token_file(Path(name))
        return token, f"{TOKEN_FILE_VARIABLE}={name}", warnings
    if served is None:
        msg = f"{URL_VARIABLE} is set, and no token is: set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}"
        raise ConfigError(msg)
    token, warnings = read_token_file(served.token_file)
    if not token.is_ours:
        msg = f"{served.token_file} holds no token of this service"
        raise ConfigError(msg)
    return token, str(served.token_file), warnings


def read_token_file(file: Path) -> tuple[Token, tuple[str, ...]]:
    """Read a token; warn where others may read it too.

    Raises:
        ConfigError: It cannot be read, or holds no token.
    """
    try:
        with translating_os_errors(str(file)), file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(_MAX_FILE_BYTES)
    except StoreError as error:
        msg = f"the token file cannot be read: {error}"
        raise ConfigError(msg) from error
    warnings: tuple[str, ...] = ()
    if mode & _OTHERS_MAY_READ:
        warnings = (f"others may read the token in {file}: chmod 600 {file}",)
    return Token(data.decode("ascii", errors="replace")), warnings

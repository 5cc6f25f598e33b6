"""Making an fsspec filesystem that neither remembers listings nor retries behind our back."""

from collections.abc import Mapping
from typing import Any

from ckptguard.errors import ConfigError

# fsspec's classes carry no types; the store translates all that comes out of them.
Filesystem = Any

_INSTALL = {
    "s3": "pip install 'ckptguard[s3]'",
    "s3a": "pip install 'ckptguard[s3]'",
    "gs": "pip install gcsfs",
    "gcs": "pip install gcsfs",
    "az": "pip install adlfs",
    "abfs": "pip install adlfs",
    "abfss": "pip install adlfs",
    "hf": "pip install huggingface_hub",
    "http": "pip install 'fsspec[http]'",
    "https": "pip install 'fsspec[http]'",
    "sftp": "pip install paramiko",
    "ssh": "pip install paramiko",
}

# One layer retries, RetryingStore: s3fs's and botocore's own would multiply with it.
_S3_CONFIG = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 0}}


def make_filesystem(url: str, options: Mapping[str, object]) -> tuple[Filesystem, str]:
    """Return the filesystem of a URL and the root's path in it.

    Args:
        url: `protocol://...`.
        options: For the driver; they win over what the URL says.

    Raises:
        ConfigError: Unknown protocol, driver not installed, or options that it refuses.
    """
    protocol = url.partition("://")[0]
    driver = _driver(protocol)
    try:
        # The two steps of fsspec.core.url_to_fs, which would keep the instance and its credentials.
        told_by_url = driver._get_kwargs_from_urls(url)  # noqa: SLF001
        arguments = {**told_by_url, **_defaults(protocol, options)}
        filesystem = driver(skip_instance_cache=True, use_listings_cache=False, **arguments)
        root: str = driver._strip_protocol(url)  # noqa: SLF001
    except (ImportError, ValueError, TypeError, KeyError, OSError) as error:
        msg = f"cannot use {protocol}:// with these options: {type(error).__name__}: {error}"
        raise ConfigError(msg) from error
    if protocol in ("s3", "s3a"):
        filesystem.retries = 1
    return filesystem, root


def _driver(protocol: str) -> Filesystem:
    import fsspec  # noqa: PLC0415 - `ckptguard --help` starts without it

    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        remedy = _INSTALL.get(protocol, "install its fsspec driver")
        msg = f"no driver for {protocol}:// is installed: {remedy}"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"unknown kind of store {protocol}://"
        raise ConfigError(msg) from error


def _defaults(protocol: str, options: Mapping[str, object]) -> dict[str, object]:
    if protocol not in ("s3", "s3a"):
        return dict(options)
    given = options.get("config_kwargs")
    return {**options, "config_kwargs": {**_S3_CONFIG, **(given if isinstance(given, Mapping) else {})}}

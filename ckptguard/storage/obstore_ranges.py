"""Ranges of `s3://` objects through obstore, where it is installed: 2 to 4 times s3fs's rate.

Listings and stats stay with s3fs. Every range is asked for under the ETag that the object
had when it was opened, so that two versions are never read as one.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ckptguard.errors import AccessDeniedError, ObjectNotFoundError, StoreError, StoreUnavailableError
from ckptguard.storage.protocol import ObjectStat
from ckptguard.storage.redaction import redacted

FetchRange = Callable[[str, ObjectStat, int, int], bytes]
"""Return bytes `[start, end)` of a key in the bucket, or raise StoreError."""

# s3fs reads more sources of credentials than obstore does, so only what both understand the
# same way goes through obstore: keys given outright, or in the environment.
_UNDERSTOOD = frozenset({"key", "secret", "token", "endpoint_url", "client_kwargs"})


def open_ranges(bucket: str, options: Mapping[str, object]) -> FetchRange | None:
    """Return how to fetch ranges of a bucket; None where s3fs has to."""
    config = _config(options)
    if config is None:
        return None
    try:
        obstore = importlib.import_module("obstore")
        stores = importlib.import_module("obstore.store")
    except ImportError:
        return None
    store = stores.S3Store(bucket, **config)

    def fetch(key: str, stat: ObjectStat, start: int, end: int) -> bytes:
        with _translating(obstore, stat.path):
            asked = {"range": (start, end), "if_match": f'"{stat.version}"'}
            content: bytes = obstore.get(store, key, options=asked).bytes()
        return content

    return fetch


def _config(options: Mapping[str, object]) -> dict[str, Any] | None:
    key = options.get("key", os.environ.get("AWS_ACCESS_KEY_ID"))
    secret = options.get("secret", os.environ.get("AWS_SECRET_ACCESS_KEY"))
    client = options.get("client_kwargs", {})
    if not key or not secret or not options.keys() <= _UNDERSTOOD or not isinstance(client, Mapping):
        return None
    if not client.keys() <= {"region_name", "endpoint_url"}:
        return None
    endpoint = options.get("endpoint_url") or client.get("endpoint_url") or _endpoint_of_environment()
    config = {
        "access_key_id": key,
        "secret_access_key": secret,
        "session_token": options.get("token"),
        "region": client.get("region_name"),
        "endpoint": endpoint,
        # One layer retries, RetryingStore.
        "retry_config": {"max_retries": 0},
        "client_options": {"allow_http": str(endpoint).startswith("http://"), "timeout": "120s"},
    }
    return {name: value for name, value in config.items() if value is not None}


def _endpoint_of_environment() -> str | None:
    """Return where botocore sends requests for S3: the variable of this service before that of all."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


@contextmanager
def _translating(obstore: Any, key: str) -> Iterator[None]:  # noqa: ANN401 - a module
    kinds = obstore.exceptions
    try:
        yield
    except (kinds.BaseError, OSError) as error:  # 0.12 says FileNotFoundError for NotFound
        reason = redacted(str(error).partition("\n")[0])[:300]
        if isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError):
            raise AccessDeniedError(reason, key=key) from error
        if isinstance(error, kinds.PreconditionError):
            msg = "changed while being read"
            raise StoreUnavailableError(msg, key=key) from error
        if isinstance(error, kinds.NotFoundError | FileNotFoundError):
            raise _absent(str(error), key) from error
        raise StoreUnavailableError(reason, key=key) from error


def _absent(text: str, key: str) -> StoreError:
    if "NoSuchBucket" in text:
        return StoreError("the store's root is not there (NoSuchBucket)", key=key)
    return ObjectNotFoundError("no such object", key=key)

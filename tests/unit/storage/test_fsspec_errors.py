"""Exceptions of drivers: only a plain answer means absent or refused."""

import errno

import aiohttp
import pytest
from aiohttp.http_exceptions import ContentLengthError
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from fsspec.exceptions import FSTimeoutError
from multidict import CIMultiDict, CIMultiDictProxy
from s3fs.errors import translate_boto_error
from yarl import URL

from ckptguard.errors import (
    AccessDeniedError,
    LimitExceededError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from ckptguard.storage.fsspec_errors import from_driver_error, translating_driver_errors


def _boto(code: str, status: int) -> BaseException:
    """Return what s3fs raises for an answer of S3."""
    response = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    translated: BaseException = translate_boto_error(ClientError(response, "GetObject"))
    return translated


def _http(status: int) -> BaseException:
    """Return what fsspec's HTTP driver raises: everything as FileNotFoundError."""
    url = URL("http://h/x")
    request = aiohttp.RequestInfo(url, "GET", CIMultiDictProxy(CIMultiDict()), url)
    error = FileNotFoundError("http://h/x")
    error.__cause__ = aiohttp.ClientResponseError(request, (), status=status)
    return error


def _cut_short() -> BaseException:
    """Return what aiohttp raises when the body ends too early."""
    error = aiohttp.ClientPayloadError("not completed")
    error.__cause__ = ContentLengthError("Not enough data")
    return error


def _absent_because_of(cause: Exception) -> BaseException:
    error = FileNotFoundError("http://h/x")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_boto("NoSuchKey", 404), ObjectNotFoundError),
        (_boto("404", 404), ObjectNotFoundError),
        (_boto("NoSuchBucket", 404), StoreError),
        (_boto("AccessDenied", 403), AccessDeniedError),
        (_boto("403", 403), AccessDeniedError),
        (_boto("ExpiredToken", 400), AccessDeniedError),
        (_boto("InvalidAccessKeyId", 403), AccessDeniedError),
        (_boto("SignatureDoesNotMatch", 403), AccessDeniedError),
        (_boto("SlowDown", 503), StoreUnavailableError),
        (_boto("InternalError", 500), StoreUnavailableError),
        (_boto("RequestTimeout", 400), StoreUnavailableError),
        (_boto("InvalidRange", 416), StoreUnavailableError),
        (_boto("PermanentRedirect", 301), StoreError),
        (_boto("InvalidBucketName", 400), StoreError),
        (NoCredentialsError(), AccessDeniedError),
        (EndpointConnectionError(endpoint_url="http://h"), StoreUnavailableError),
        (ReadTimeoutError(endpoint_url="http://h"), StoreUnavailableError),
        (_http(404), ObjectNotFoundError),
        (_http(410), ObjectNotFoundError),
        (_http(401), AccessDeniedError),
        (_http(403), AccessDeniedError),
        (_http(429), StoreUnavailableError),
        (_http(500), StoreUnavailableError),
        (_http(400), StoreError),
        (_http(418), StoreError),
        (_absent_because_of(ConnectionRefusedError(errno.ECONNREFUSED, "no")), StoreUnavailableError),
        (_absent_because_of(aiohttp.ServerDisconnectedError()), StoreUnavailableError),
        (_absent_because_of(KeyError("x")), ObjectNotFoundError),
        (_cut_short(), StoreUnavailableError),
        (FSTimeoutError(), StoreUnavailableError),
        (ConnectionResetError(), StoreUnavailableError),
        (OSError(errno.EIO, "io"), StoreUnavailableError),
        (FileNotFoundError("x"), ObjectNotFoundError),
        (PermissionError("x"), AccessDeniedError),
        (RuntimeError("who knows"), StoreUnavailableError),
    ],
    ids=repr,
)
def test_driver_exception_means(error: BaseException, kind: type[StoreError]) -> None:
    assert type(from_driver_error(error, "k")) is kind


def test_own_errors_pass_through_unchanged() -> None:
    error = LimitExceededError("more than allowed")
    with pytest.raises(LimitExceededError), translating_driver_errors("k"):
        raise error


def test_credentials_in_a_drivers_message_are_not_repeated() -> None:
    error = RuntimeError("GET https://me:hunter2@h/x?X-Amz-Signature=abc123&part=1 failed")
    text = str(from_driver_error(error, "k"))
    assert "hunter2" not in text
    assert "abc123" not in text
    assert "part=1" in text

"""What a training job may name, and what nobody may."""

import pytest

from ckptguard.errors import ConfigError
from ckptguard.storage.allowed_urls import canonical_url, refuse_unsafe_url, unsafe_url_reasons

SAFE = {
    "/data/ckpts": "file:///data/ckpts",
    "/data//ckpts/./run-7/": "file:///data/ckpts/run-7",
    "//data/ckpts": "file:///data/ckpts",
    "file:///data/ckpts/": "file:///data/ckpts",
    "FILE:///data": "file:///data",
    "/data/a b%20c#d?e::f": "file:///data/a b%20c#d?e::f",
    "s3://bucket": "s3://bucket",
    "s3://bucket/": "s3://bucket",
    "S3://Bucket/Run/step-1/": "s3://Bucket/Run/step-1",
    "s3a://bucket/run": "s3://bucket/run",
    "s3://123456789012/run#1": "s3://123456789012/run#1",
    "gcs://my.bucket_2/x": "gs://my.bucket_2/x",
    "az://container/x": "abfs://container/x",
    "abfss://c@acct.dfs.core.windows.net/x": "abfs://c@acct.dfs.core.windows.net/x",
    "hf://user/repo/step-1": "hf://user/repo/step-1",
    "/dev/shm/ckpts": "file:///dev/shm/ckpts",  # noqa: S108 - a place that is allowed
    "/process/x": "file:///process/x",
}

UNSAFE = {
    "": "neither an absolute path nor a URL",
    "data/ckpts": "neither an absolute path nor a URL",
    "s3:bucket": "neither an absolute path nor a URL",
    "http://169.254.169.254/latest/meta-data/": "stores of kind http:// are not opened",
    "https://example.org/ckpts": "stores of kind https:// are not opened",
    "ftp://host/x": "stores of kind ftp:// are not opened",
    "memory://x": "stores of kind memory:// are not opened",
    "gopher://127.0.0.1:6379/_x": "stores of kind gopher:// are not opened",
    "simplecache::s3://bucket/x": "chained URL",
    "s3://bucket/x::http://169.254.169.254/": "chained URL",
    "zip://a.zip::/data/x": "chained URL",
    "s3://key:secret@bucket/x": "a user or password",
    "s3://169.254.169.254/latest": "an address or a port",
    "s3://0xa9.0xfe.0xa9.0xfe/x": "an address or a port",
    "s3://127.1/x": "an address or a port",
    "s3://[::1]/x": "chained URL",
    "s3://bucket:9000/x": "an address or a port",
    "gs://metadata.google.internal/x": "a host of this machine or its own network",
    "s3://localhost/x": "a host of this machine or its own network",
    "s3:///x": "no bucket or container",
    "s3://bu%63ket/x": "not the name of a bucket",
    "s3://bucket/x?versionId=1": "a query",
    "s3://bucket/x?X-Amz-Signature=abc": "a query",
    "s3://bucket?x": "a query",
    "s3://bucket/a//b": "empty, '.' or '..' segment",
    "s3://bucket/a/../b": "empty, '.' or '..' segment",
    "s3://bucket/a/http://x": "a URL inside a path",
    "abfs://c@169.254.169.254/x": "no host of Azure's storage",
    "abfs://c@evil.example/x": "no host of Azure's storage",
    "file://host/data": "a file URL with a host",
    "file://../data": "a file URL with a host",
    "/data/../etc": "empty, '.' or '..' segment",
    "/": "the whole disk",
    "file:///": "the whole disk",
    "/proc/self/root/etc": "what the kernel shows as files",
    "file:///./proc//1": "what the kernel shows as files",
    "/sys/kernel": "what the kernel shows as files",
    "/dev": "what the kernel shows as files",
    "/dev/fd/3": "what the kernel shows as files",
    "/dev/shmem": "what the kernel shows as files",  # noqa: S108 - and one that only looks like it
    "/data/x\ny": "control character",
    "/data/x\0y": "control character",
    "/data/\\x": "backslash",
    "/data/http://x": "a URL inside a path",
    "/data/" + "x/" * 1100: "bytes long",
    "/data/\ud800": "lone surrogate",
}


@pytest.mark.parametrize(("url", "canonical"), SAFE.items())
def test_a_safe_url_has_one_form(url: str, canonical: str) -> None:
    assert unsafe_url_reasons(url) == ()
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


@pytest.mark.parametrize(("url", "reason"), UNSAFE.items())
def test_an_unsafe_url_is_refused_with_its_reason(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
        refuse_unsafe_url(url)
    with pytest.raises(ConfigError):
        canonical_url(url)


def test_every_reason_is_told_and_no_credential_is() -> None:
    url = "s3://key:hunter2@bucket/a/../b?X-Amz-Signature=abcdef"
    assert len(unsafe_url_reasons(url)) == 3
    with pytest.raises(ConfigError) as raised:
        refuse_unsafe_url(url)
    assert "hunter2" not in str(raised.value)
    assert "abcdef" not in str(raised.value)

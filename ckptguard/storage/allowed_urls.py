"""Which URLs the service and its workers open at all: a rule on the text, without asking disk or network.

A location comes from a training job, and the worker that opens it stands inside somebody's network. So
what is allowed is a short list of kinds of store, each with a name of a known shape after `://`; whatever
could make a driver talk to a host of the caller's choice, read through a cache, or carry a credential is
refused. Registration applies it, and the worker applies it again (threats.md, "SSRF via URI").
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from ckptguard.errors import ConfigError
from ckptguard.model.manifest_laws import path_problems
from ckptguard.storage.redaction import redacted

MAX_URL_BYTES: Final = 2048
"""Of a whole URL. PostgreSQL indexes no text of more than 2,704 bytes."""

_CANONICAL: Final = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    # One driver, adlfs, and one place, whichever of the three is written.
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "hf": "hf",
}
ALLOWED_SCHEMES: Final = tuple(_CANONICAL)
"""Kinds of store whose name after `://` is a bucket or container of one provider, never a host.

`http` and `https` are none: their host is the caller's choice, they follow redirects, and list no folder.
"""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}")  # 222: the longest of the three, of GCS
_AZURE_HOST: Final = re.compile(
    r"[a-z0-9]{3,24}\.(?:dfs|blob)\.core\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)"
)
_NO_DISKS: Final = re.compile(r"(?:proc|sys|dev(?!/shm(?:/|$)))(?:/.*)?")
"""What the kernel shows as files: other processes, their memory and their roots; devices."""
_PRIVATE_SUFFIXES: Final = ("localhost", "local", "internal", "localdomain", "intranet", "lan")
_ADDRESS: Final = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]+)){1,3}")
"""IPv4 in every notation that resolvers take, but for one bare number, which may be a bucket."""


def refuse_unsafe_url(url: str) -> None:
    """Let pass only what may be opened: an absolute local path, or a URL of an allowed kind of store.

    Raises:
        ConfigError: With every reason; no credential is repeated.
    """
    reasons = unsafe_url_reasons(url)
    if reasons:
        msg = f"{redacted(url)[:200]}: {'; '.join(reasons)}"
        raise ConfigError(msg)


def unsafe_url_reasons(url: str) -> tuple[str, ...]:
    """List why a URL or local path may not be opened; empty if it may."""
    return tuple(_reasons(url))


def canonical_url(url: str) -> str:
    """Return the one form of a safe URL: two texts for one place are equal.

    Scheme in its first spelling (`gcs` is `gs`), no closing slash; a local path is `file:///path`, with `.`
    and doubled slashes taken out. Case counts, links are not looked at, `%` is an ordinary character.

    Raises:
        ConfigError: It is not safe.
    """
    refuse_unsafe_url(url)
    scheme, rest = _split(url)
    if scheme == "file":
        return "file://" + posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_CANONICAL[scheme]}://{rest.rstrip('/')}"


def _split(url: str) -> tuple[str, str]:
    """Return the scheme, "" for neither URL nor absolute path, and what follows `://`."""
    if url.startswith("/"):
        return "file", url
    match = _SCHEME.match(url)
    return (match[1].lower(), url[match.end() :]) if match else ("", url)


def _reasons(url: str) -> Iterator[str]:
    size_bytes = len(url.encode("utf-8", "surrogatepass"))
    if size_bytes > MAX_URL_BYTES:
        yield f"{size_bytes} bytes long, at most {MAX_URL_BYTES}"
        return
    scheme, rest = _split(url)
    if scheme != "file" and "::" in url:
        yield "a chained URL, which would read from a cache or an archive and not from the store"
    elif not scheme:
        yield "neither an absolute path nor a URL"
    elif scheme not in _CANONICAL:
        yield f"stores of kind {scheme}:// are not opened; {', '.join(ALLOWED_SCHEMES)} are"
    else:
        yield from _local_reasons(rest) if scheme == "file" else _remote_reasons(scheme, rest)


def _local_reasons(path: str) -> Iterator[str]:
    if not path.startswith("/"):
        yield "a file URL with a host; write file:///path"
        return
    if "://" in path:
        yield "a URL inside a path"
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if not segments:
        yield "the whole disk; name a folder below /"
    elif _NO_DISKS.fullmatch("/".join(segments)):
        yield "what the kernel shows as files, not a disk"
    else:
        yield from _plain("/".join(segments))


def _remote_reasons(scheme: str, rest: str) -> Iterator[str]:
    place, query, _ = rest.partition("?")
    authority, _, path = place.partition("/")
    yield from _authority_reasons(scheme, authority)
    if query:  # also a version of an object, to s3fs
        yield "a query, which is part of no object's name and is often a credential"
    if "://" in path:
        yield "a URL inside a path"
    if path.rstrip("/"):
        yield from _plain(path.rstrip("/"))


def _authority_reasons(scheme: str, authority: str) -> Iterator[str]:
    container, at, host = authority.rpartition("@")
    if at and _CANONICAL[scheme] == "abfs":
        if not _AZURE_HOST.fullmatch(host):
            yield "an account that is no host of Azure's storage"
        name = container
    elif at:
        yield "a user or password in the URL"
        name = host
    else:
        name = authority
    if not name:
        yield "no bucket or container"
    elif ":" in name or _ADDRESS.fullmatch(name):
        yield "an address or a port, not a bucket"
    elif name.rpartition(".")[2].lower() in _PRIVATE_SUFFIXES:
        yield "a host of this machine or its own network, not a bucket"
    elif not _BUCKET.fullmatch(name):
        yield "not the name of a bucket or container"


def _plain(path: str) -> Iterator[str]:
    for problem in path_problems(path, at=""):
        yield problem.removeprefix(": ")

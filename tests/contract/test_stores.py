"""Every store keeps the contract."""
# ruff: noqa: D102 - the methods are those of StoreUnderTest, which says what they do

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ckptguard.storage.caching import CachingStore
from ckptguard.storage.fsspec_store import FsspecStore
from ckptguard.storage.local import LocalStore
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import Store
from ckptguard.storage.retry import RetryingStore
from ckptguard.testing.fakes import FaultyStore
from ckptguard.testing.store_contract import CHECKS, Check, StoreUnderTest
from tests.integration.s3_server import S3Server

NOBODY = 65534
_roots = count()


class Memory:
    """MemoryStore, plain or inside another store."""

    def __init__(self, wrap: Callable[[Store], Store]) -> None:
        self._memory = MemoryStore()
        self.store = wrap(self._memory)

    def put(self, objects: Mapping[str, bytes]) -> None:
        for path, content in objects.items():
            self._memory.put(path, content)

    def delete(self, path: str) -> None:
        self._memory.remove(path)

    @contextmanager
    def denied(self, path: str) -> Iterator[Store]:
        self._memory.deny(path)
        yield self.store

    def without_root(self) -> Store | None:
        return None


class Folder:
    """A real folder, read by LocalStore or by fsspec."""

    def __init__(self, folder: Path, make: Callable[[Path], Store]) -> None:
        self._folder = folder / "root"
        self._folder.mkdir()
        self._make = make
        self.store = make(self._folder)

    def put(self, objects: Mapping[str, bytes]) -> None:
        for path, content in objects.items():
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            # Another file each time: two writes within one tick of the clock keep the mtime.
            draft = self._folder.parent / "draft"
            draft.write_bytes(content)
            draft.replace(self._folder / path)

    def delete(self, path: str) -> None:
        (self._folder / path).unlink()

    @contextmanager
    def denied(self, path: str) -> Iterator[Store]:
        (self._folder / path).chmod(0)
        is_root = os.geteuid() == 0
        if is_root:  # whom no mode bits stop
            os.seteuid(NOBODY)
        try:
            yield self.store
        finally:
            if is_root:
                os.seteuid(0)
            (self._folder / path).chmod(0o755)

    def without_root(self) -> Store | None:
        return self._make(self._folder / "never-made")


class Remote:
    """A folder of an fsspec filesystem that has a writing side."""

    def __init__(
        self,
        url: str,
        options: dict[str, object],
        *,
        denying: Store | None = None,
        rootless: Store | None = None,
    ) -> None:
        protocol, _, self._base = url.partition("://")
        self.store: Store = FsspecStore(url, options)
        self._filesystem: Any = fsspec.filesystem(protocol, skip_instance_cache=True, **options)
        self._denying = denying
        self._rootless = rootless

    def put(self, objects: Mapping[str, bytes]) -> None:
        self._filesystem.pipe({f"{self._base}/{path}": content for path, content in objects.items()})

    def delete(self, path: str) -> None:
        self._filesystem.rm_file(f"{self._base}/{path}")

    def denied(self, path: str) -> AbstractContextManager[Store] | None:  # noqa: ARG002 - all of it is
        return None if self._denying is None else nullcontext(self._denying)

    def without_root(self) -> Store | None:
        return self._rootless


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user may pass through, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="ckptguard-contract-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _s3(server: S3Server) -> Remote:
    url = f"s3://{server.bucket}/root-{next(_roots)}"
    return Remote(
        url,
        server.options(),
        denying=FsspecStore(url, server.options(secret="wrong")),  # noqa: S106
        rootless=FsspecStore("s3://no-such-bucket/root", server.options()),
    )


KINDS = (
    "memory",
    "retrying",
    "caching",
    "faulty",
    "local",
    "fsspec-memory",
    "fsspec-file",
    pytest.param("s3", marks=pytest.mark.s3),
)
WRAPS: dict[str, Callable[[Store], Store]] = {
    "memory": lambda store: store,
    "retrying": RetryingStore,
    "caching": CachingStore,
    "faulty": FaultyStore,
}


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, open_folder: Path) -> StoreUnderTest:
    kind = request.param
    if kind in WRAPS:
        return Memory(WRAPS[kind])
    if kind == "local":
        return Folder(open_folder, LocalStore)
    if kind == "fsspec-file":
        return Folder(open_folder, lambda folder: FsspecStore(f"file://{folder}"))
    if kind == "fsspec-memory":
        return Remote(f"memory://root-{next(_roots)}", {})
    return _s3(request.getfixturevalue("s3_server"))


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_store_keeps_the_contract(check: Check, subject: StoreUnderTest) -> None:
    check(subject)

"""A real S3 server behind a line that breaks: unknown, then right; never short, absent or empty."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import fsspec
import pytest

from ckptguard.errors import StoreUnavailableError
from ckptguard.storage.fsspec_store import FsspecStore
from ckptguard.storage.protocol import Store
from ckptguard.storage.retry import RetryingStore, RetryPolicy
from tests.integration.s3_server import S3Server

pytestmark = pytest.mark.s3

CONTENT = bytes(range(256)) * 40_000
AT_ONCE = RetryPolicy(attempts=4, wait_initial_s=0, wait_max_s=0, wait_jitter_s=0)


class Line:
    """A TCP proxy to the server; each of the next `cuts` connections ends after so many bytes."""

    def __init__(self, server: S3Server) -> None:
        parts = urlsplit(server.endpoint)
        self._target = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts: list[int] = []
        self.is_silent = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server, suppress(OSError):
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            self._deliver(server, client)
            client.shutdown(socket.SHUT_RDWR)  # a close alone waits for the thread in recv

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while request := client.recv(1 << 16):
                if not self.is_silent:
                    server.sendall(request)

    def _deliver(self, server: socket.socket, client: socket.socket) -> None:
        left: int | None = None
        while answer := server.recv(1 << 16):
            if left is None and self.cuts:
                left = self.cuts.pop()
            if left is not None and len(answer) > left:
                client.sendall(answer[:left])
                return
            left = None if left is None else left - len(answer)
            client.sendall(answer)


@pytest.fixture
def line(s3_server: S3Server) -> Iterator[Line]:
    filesystem = fsspec.filesystem("s3", skip_instance_cache=True, **s3_server.options())
    filesystem.pipe_file(f"{s3_server.bucket}/faults/a", CONTENT)
    proxy = Line(s3_server)
    yield proxy
    proxy.close()


def _store(server: S3Server, line: Line, **options: object) -> Store:
    return FsspecStore(
        f"s3://{server.bucket}", {**server.options(), "endpoint_url": line.endpoint, **options}
    )


def _read(store: Store) -> bytes:
    buffer = bytearray(len(CONTENT))
    with store.open("faults/a") as reader:
        got = reader.readinto(memoryview(buffer), 0)
    return bytes(buffer[:got])


@pytest.mark.parametrize(
    "options", [{}, {"config_kwargs": {"read_timeout": 5}}], ids=["obstore where installed", "s3fs"]
)
def test_body_cut_half_way_is_unavailable_and_whole_on_retry(
    s3_server: S3Server, line: Line, options: dict[str, object]
) -> None:
    store = _store(s3_server, line, **options)
    with store.open("faults/a") as reader:
        line.cuts = [100_000]
        with pytest.raises(StoreUnavailableError):
            reader.readinto(memoryview(bytearray(len(CONTENT))), 0)
    line.cuts = [100_000]
    assert _read(RetryingStore(store, AT_ONCE)) == CONTENT


def test_cut_answer_to_any_request_is_unavailable(s3_server: S3Server, line: Line) -> None:
    for cut in (0, 100):
        for operation in (
            lambda: list(_store(s3_server, line).walk("faults")),
            lambda: _store(s3_server, line).stat("faults/a"),
        ):
            line.cuts = [cut] * 20
            with pytest.raises(StoreUnavailableError):
                operation()
            line.cuts = []


def test_server_that_does_not_answer_is_unavailable(s3_server: S3Server, line: Line) -> None:
    line.is_silent = True
    with pytest.raises(StoreUnavailableError):
        _store(s3_server, line, config_kwargs={"read_timeout": 1}).stat("faults/a")


def test_server_that_is_gone_is_unavailable(s3_server: S3Server, line: Line) -> None:
    line.close()
    store = _store(s3_server, line)
    for operation in (
        lambda: list(store.walk()),
        lambda: store.stat("faults/a"),
        lambda: store.open("faults/a"),
    ):
        with pytest.raises(StoreUnavailableError):
            operation()


def test_reader_without_the_right_to_write_reads(s3_server: S3Server, line: Line) -> None:
    del line
    store = FsspecStore(f"s3://{s3_server.bucket}", s3_server.options("reader"))
    assert [stat.path for stat in store.walk("faults")] == ["faults/a"]
    assert _read(store) == CONTENT


def test_object_overwritten_while_open_is_never_a_mixture(s3_server: S3Server, line: Line) -> None:
    """One version or the other, or (obstore asks under the ETag) an error; not a bit of each."""
    filesystem = fsspec.filesystem("s3", skip_instance_cache=True, **s3_server.options())
    store = _store(s3_server, line)
    buffer = bytearray(10)
    with store.open("faults/a") as reader:
        filesystem.pipe_file(f"{s3_server.bucket}/faults/a", bytes(len(CONTENT)))
        try:
            reader.readinto(memoryview(buffer), 0)
        except StoreUnavailableError:
            return
    assert buffer == bytes(10)
    assert store.stat("faults/a").version != reader_version(reader)


def reader_version(reader: object) -> str | None:
    version: str | None = getattr(reader, "version", None)
    return version

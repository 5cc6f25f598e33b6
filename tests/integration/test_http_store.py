"""FsspecStore over HTTP: single objects by ranges; a folder is unknown, never empty."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ckptguard.errors import AccessDeniedError, ObjectNotFoundError, StoreError, StoreUnavailableError
from ckptguard.storage.open_url import open_location
from ckptguard.storage.protocol import Store, read_whole
from ckptguard.storage.retry import RetryPolicy

CONTENT = bytes(range(256)) * 100
AT_ONCE = RetryPolicy(attempts=2, wait_initial_s=0, wait_max_s=0, wait_jitter_s=0)
STATUS = {"/refused": 403, "/broken": 500, "/folder": 404, "/gone": 404}


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT under any path, by ranges except under `/no-ranges`, with STATUS for some."""

    def do_HEAD(self) -> None:
        """Describe."""
        self._answer(with_body=False)

    def do_GET(self) -> None:
        """Deliver."""
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""

    def _answer(self, *, with_body: bool) -> None:
        status, body = STATUS.get(self.path, 200), CONTENT
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if status == 200 and asked and self.path != "/no-ranges":
            status, body = 206, CONTENT[int(asked[1]) : int(asked[2]) + 1]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _open(url: str) -> tuple[Store, str]:
    return open_location(url, retry=AT_ONCE)


def test_single_object_is_listed_alone_and_read_by_ranges(host: str) -> None:
    store, prefix = _open(f"{host}/a b/model%23.safetensors")
    assert prefix == "a b/model#.safetensors"
    assert [(stat.path, stat.length_bytes) for stat in store.walk(prefix)] == [(prefix, len(CONTENT))]
    buffer = bytearray(100)
    with store.open(prefix) as reader:
        assert reader.readinto(memoryview(buffer), 300) == 100
    assert buffer == CONTENT[300:400]
    assert read_whole(store, prefix, max_bytes=len(CONTENT)) == CONTENT


def test_folder_is_unknown_not_empty(host: str) -> None:
    store, prefix = _open(f"{host}/folder")
    with pytest.raises(StoreError, match="HTTP lists no folders") as caught:
        list(store.walk(prefix))
    assert not isinstance(caught.value, ObjectNotFoundError)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("refused", AccessDeniedError), ("broken", StoreUnavailableError), ("gone", ObjectNotFoundError)],
)
def test_status_is_told_although_the_driver_calls_all_of_them_absent(
    host: str, path: str, kind: type[StoreError]
) -> None:
    store, prefix = _open(f"{host}/{path}")
    with pytest.raises(kind):
        store.stat(prefix)


def test_server_that_ignores_ranges_is_refused(host: str) -> None:
    store, prefix = _open(f"{host}/no-ranges")
    with store.open(prefix) as reader, pytest.raises(StoreError, match="ignores byte ranges"):
        reader.readinto(memoryview(bytearray(10)), 10)


def test_unreachable_host_is_unavailable() -> None:
    store, prefix = _open("http://127.0.0.1:1/model.safetensors")
    for operation in (lambda: list(store.walk(prefix)), lambda: store.stat(prefix)):
        with pytest.raises(StoreUnavailableError):
            operation()

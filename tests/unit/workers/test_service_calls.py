"""What a worker takes from whoever answers as the service (docs/threats.md)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ckptguard.client.address import Address
from ckptguard.errors import ServiceError
from ckptguard_workers import service_calls
from ckptguard_workers.service_calls import ServiceCalls

TOKEN = "ckg_" + "t" * 43


@contextmanager
def _answering(body: bytes, seen: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _take(url: str) -> None:
    calls = ServiceCalls(Address.of(url, TOKEN))
    try:
        calls.take_lease(worker="w", capabilities={}, wait_s=0)
    finally:
        calls.close()


def test_an_answer_longer_than_any_fills_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_calls, "MAX_ANSWER_BYTES", 1000)
    with _answering(b"[" + b"0," * 1000 + b"0]", []) as url, pytest.raises(ServiceError, match="longer than"):
        _take(url)


def test_no_proxy_of_the_environment_is_shown_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of_proxy: list[str] = []
    asked: list[str] = []
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with _answering(b"{}", asked_of_proxy) as proxy, _answering(b"{}", asked) as url:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        with pytest.raises(ServiceError, match="no lease"):
            _take(url)
    assert (asked_of_proxy, asked) == ([], ["/v1/leases"])

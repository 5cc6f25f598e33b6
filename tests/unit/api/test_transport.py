"""What every answer carries, and what the log says of it (threats.md, "XSS", "Log injection")."""

import asyncio
import contextlib
import io
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import structlog

from ckptguard_api.serving.bounded_http import MAX_HEAD_BYTES
from ckptguard_api.structured_logs import configure_logs
from ckptguard_api.transport import Transport
from tests.served_app import ServedApp

PATHS = ["/healthz", "/openapi.json", "/v1/projects", "/v1/nothing", "/v1/tokens/x"]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return what this process logs as JSON; its old logging comes back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    configure_logs()
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def _lines(logs: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in logs.getvalue().splitlines()]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_tells_browsers_to_do_nothing_with_it(door: ServedApp, path: str) -> None:
    headers = door.client().get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "server" not in headers


def test_no_other_origin_is_allowed_anything(door: ServedApp) -> None:
    client = door.client()
    origin = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [client.get("/v1/projects", headers=origin), client.options("/v1/projects", headers=origin)]
    assert [name for answer in answers for name in answer.headers if name.startswith("access-control")] == []
    assert answers[1].status_code == 405


def test_a_safe_request_id_is_kept_and_another_replaced(door: ServedApp) -> None:
    client = door.client()
    assert (
        client.get("/healthz", headers={"X-Request-ID": "job-7.a_b"}).headers["x-request-id"] == "job-7.a_b"
    )
    for unsafe in ("a b", "x" * 65, "a;b", ""):
        given = client.get("/healthz", headers={"X-Request-ID": unsafe}).headers["x-request-id"]
        assert len(given) == 32, unsafe


def test_a_request_is_one_line_with_who_asked_and_what_came_of_it(door: ServedApp, logs: io.StringIO) -> None:
    door.client().get("/v1/runs/r1/events", headers={"X-Request-ID": "id-1"})
    lines = [line for line in _lines(logs) if line.get("request_id") == "id-1"]
    assert len(lines) == 1
    assert lines[0]["event"] == "request"
    assert (lines[0]["method"], lines[0]["path"], lines[0]["status"]) == ("GET", "/v1/runs/r1/events", 404)
    assert lines[0]["run"] == "r1"
    assert lines[0]["actor"].startswith("token:test (ckg_")
    assert lines[0]["at"].endswith("Z")


@pytest.mark.parametrize("character", ["\r", "\n", "\x1b", "\x85", "\u2028", "\x9b"])
def test_a_name_cannot_forge_a_line_of_the_log(door: ServedApp, logs: io.StringIO, character: str) -> None:
    name = f"x{character}2026 level=info event=forged"
    door.client().get("/v1/runs/" + quote(name, safe="") + "/events")
    text = logs.getvalue()
    assert [line for line in text.split("\n") if character in line] == []
    found = [line for line in _lines(logs) if line["event"] == "request"]
    assert [line["run"] for line in found] == [name]


def test_libraries_log_as_json_too_and_cannot_forge_a_line(logs: io.StringIO) -> None:
    logging.getLogger("some.library").warning("bad\r\nname \x1b[31m%s", "x\ny")
    lines = _lines(logs)
    assert [(line["event"], line["level"]) for line in lines] == [("bad\r\nname \x1b[31mx\ny", "warning")]
    assert "\x1b" not in logs.getvalue()


def test_no_log_holds_a_token(door: ServedApp, logs: io.StringIO) -> None:
    def fail() -> None:
        msg = "a fault"
        raise RuntimeError(msg)

    door.app.add_api_route("/v1/fail", fail)
    client = door.client()
    token = client.headers["authorization"].removeprefix("Bearer ")
    client.get("/v1/fail")
    made = client.post("/v1/tokens", json={"name": "n", "scopes": ["read"]}).json()["token"]
    client.get("/v1/projects", headers={"Authorization": f"Bearer {made}x"})
    client.get(f"/v1/projects?token={made}")
    text = logs.getvalue()
    assert "a fault" in text
    assert token not in text
    assert made not in text
    assert token[8:30] not in text


def test_more_requests_than_may_be_at_once_are_told_to_come_again() -> None:
    sent: list[Any] = []

    async def never(*_: Any) -> Any:  # noqa: ANN401 - ASGI
        await asyncio.Event().wait()

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI
        sent.append(message)

    async def ask_twice() -> None:
        layer = Transport(never, max_active=1)
        scope = {"type": "http", "path": "/v1/x", "method": "GET", "headers": []}
        first = asyncio.create_task(layer(dict(scope), never, send))
        await asyncio.sleep(0)
        await layer(dict(scope), never, send)
        first.cancel()

    asyncio.run(ask_twice())
    assert sent[0]["status"] == 429
    assert (b"retry-after", b"2") in sent[0]["headers"]


def _ask(door: ServedApp, head: bytes) -> bytes:
    address = urlsplit(door.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head)
        with contextlib.suppress(ConnectionError):
            return connection.recv(4096)
    return b""


def test_a_head_that_is_too_long_ends_the_connection(door: ServedApp) -> None:
    long = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * (4 * MAX_HEAD_BYTES)
    many = b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * MAX_HEAD_BYTES
    for head in (long, many):
        assert _ask(door, head).startswith(b"HTTP/1.1 431 ")

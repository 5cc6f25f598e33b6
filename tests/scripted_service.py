"""A real HTTP server whose answers a test writes down beforehand."""

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "ckg_a-secret-that-nobody-may-see"  # noqa: S105 - of no service
PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer.

    Args:
        value: Sent as JSON, unless `raw` is given.
        raw: Sent as it is.
        is_cut: Close the connection instead of an answer.
        held: Wait for this before answering.
    """

    status: int = 200
    value: Any = None
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    is_cut: bool = False
    held: threading.Event | None = None

    def body(self) -> bytes:
        """Return what is sent."""
        return self.raw if self.raw is not None else json.dumps(self.value).encode()


def problem(status: int, code: str, detail: str = "no", **members: Any) -> Reply:  # noqa: ANN401 - JSON values
    """Return an answer that is a problem document."""
    headers = members.pop("headers", {})
    value = {
        "type": f"urn:ckptguard:problem:{code}",
        "title": "t",
        "status": status,
        "detail": detail,
        **members,
    }
    return Reply(status=status, value=value, content_type=PROBLEM, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


class ScriptedService:
    """Answers each `METHOD /path` by its replies in turn; the last one again and again."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Reply]] = {}
        self.asked: list[Asked] = []
        self.url = ""

    def on(self, request: str, *replies: Reply) -> None:
        """Write down the answers of a request, e.g. `GET /v1/runs`."""
        self.replies[request] = list(replies)

    def requests(self, request: str) -> list[Asked]:
        """Return what came of one kind."""
        method, _, path = request.partition(" ")
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    def take(self, asked: Asked) -> Reply:
        """Note a request and choose its answer."""
        self.asked.append(asked)
        replies = self.replies.get(f"{asked.method} {asked.path}")
        if not replies:
            return problem(404, "not_found", f"nothing at {asked.path}")
        return replies.pop(0) if len(replies) > 1 else replies[0]


class _Handler(BaseHTTPRequestHandler):
    service: ScriptedService
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        reply = self.service.take(
            Asked(
                method=self.command,
                path=parts.path,
                query={name: values[0] for name, values in parse_qs(parts.query).items()},
                headers={name.lower(): value for name, value in self.headers.items()},
                body=json.loads(data) if data else None,
            )
        )
        if reply.held is not None:
            reply.held.wait(20)
        if reply.is_cut:
            self.close_connection = True
            return
        body = reply.body()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that gave up is what some tests are about."""


@contextmanager
def scripted_service() -> Iterator[ScriptedService]:
    """Serve on a free port of this machine."""
    service = ScriptedService()
    handler = type("Handler", (_Handler,), {"service": service})
    with _Server(("127.0.0.1", 0), handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def target_value(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    """Return a target as the service writes it."""
    return {
        "id": 7,
        "branch": 0,
        "step": 1200,
        "save_id": "s-1",
        "created_at": "2026-11-29T12:00:00.000000Z",
        "store": "demo",
        "path": "run-7/step-1200",
        "url": "file:///data/ckpts/run-7/step-1200",
        "assurance": "loaded",
        "provenance": "proven",
        "device": "cpu",
        "validated_at": "2026-11-29T12:01:00.000000Z",
        "validation_id": 9,
        "format": "dcp",
        "num_files": 2,
        "bytes_total": 12,
        **changes,
    }


def resume_value(state: str = "valid", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    """Return the answer of a resume target as the service writes it."""
    value: dict[str, Any] = {
        "state": state,
        "run": "run-7",
        "index": 41,
        "is_cached": False,
        "asked": {"min_assurance": "loaded", "require_newest": False},
        "target": target_value() if state == "valid" else None,
        "below": target_value(assurance="content") if state == "valid_below" else None,
        "passed_over": [],
        "passed_over_total": 0,
        "superseded": 0,
    }
    return value | changes

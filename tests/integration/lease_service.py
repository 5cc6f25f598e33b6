"""A small real HTTP server that speaks the worker's side of docs/service.md, over rows in memory."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ckptguard.model.policy import Policy
from ckptguard.model.policy_json import policy_to_json

TOKEN = "ckg_worker-0123456789"  # noqa: S105 - of a test
_FAR = timedelta(hours=1)
_BEFORE = "2026-01-01T00:00:00Z"


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One lease."""

    id: int
    validation: int
    token: str
    expires_at: float
    ending: str = ""
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class Validation:
    """A request for a verdict."""

    id: int
    path: str
    policy: Policy
    manifests: Mapping[str, bytes] = field(default_factory=dict)
    is_from_writer: bool = True
    store: str = "demo"
    store_url: str = "file:///nowhere"
    reports: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether nobody holds it and nobody finished it."""
        return not self.reports and all(attempt.ending for attempt in self.attempts)


class LeaseService:
    """What the server knows; tests read it, and set how it behaves."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.validations: list[Validation] = []
        self.heartbeats: list[dict[str, Any]] = []
        self.capabilities: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.lease_s = 60.0
        self.heartbeat_every_s = 0.2
        self.is_down = False
        self.is_wanted = True
        self.verdict_after_files = 0
        self.url = ""

    def add(self, path: str, *, policy: Policy | None = None, **fields: Any) -> Validation:  # noqa: ANN401
        """Queue a validation."""
        with self.lock:
            number = len(self.validations) + 1
            asked = policy or Policy(settle_s=0)
            validation = Validation(id=number, path=path, policy=asked, **fields)
            self.validations.append(validation)
            return validation

    def expire(self) -> None:
        """End every lease whose time is up."""
        now = time.monotonic()
        for validation in self.validations:
            for attempt in validation.attempts:
                if not attempt.ending and attempt.expires_at < now:
                    attempt.ending = "expired"

    def has_ended(self, attempt: Attempt) -> bool:
        """Say whether a lease is over."""
        with self.lock:
            self.expire()
            return bool(attempt.ending)

    def take(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Answer POST /v1/leases."""
        until = time.monotonic() + min(float(body.get("wait_s", 0)), 1.0)  # a stop waits as long
        while True:
            with self.lock:
                self.capabilities.append(dict(body["capabilities"]))
                self.expire()
                found = next((one for one in self.validations if one.is_open), None)
                if found is not None:
                    return 201, self._lease(found)
            if time.monotonic() >= until or self.is_down:
                return 204, None
            time.sleep(0.02)

    def _lease(self, validation: Validation) -> dict[str, Any]:
        number = sum(len(one.attempts) for one in self.validations) + 1
        attempt = Attempt(
            id=number,
            validation=validation.id,
            token=f"ckl_{number}",
            expires_at=time.monotonic() + self.lease_s,
        )
        validation.attempts.append(attempt)
        return {
            "id": number,
            "token": attempt.token,
            "fence": number,
            "expires_at": (datetime.now(UTC) + timedelta(seconds=self.lease_s)).isoformat(),
            "deadline_at": (datetime.now(UTC) + _FAR).isoformat(),
            "heartbeat_every_s": self.heartbeat_every_s,
            "stall_after_s": 300.0,
            "validation": {
                "id": validation.id,
                "depth": validation.policy.depth.value,
                "attempt": len(validation.attempts),
            },
            "checkpoint": {
                "id": 1,
                "run": "r",
                "step": 2,
                "save_id": "s",
                "created_at": "2026-01-01T00:00:00Z",
            },
            "store": {"name": validation.store, "url": validation.store_url, "path": validation.path},
            "policy": policy_to_json(validation.policy),
            "parts": [
                {"name": name, "identity": "sha256:x", "is_from_writer": validation.is_from_writer}
                for name in validation.manifests
            ]
            or [{"name": "", "identity": None, "is_from_writer": False}],
            "known_files": len(validation.files),
        }

    def of_lease(self, number: int, token: str) -> tuple[Validation, Attempt] | None:
        """Return what a live lease is about; None: 409."""
        self.expire()
        for validation in self.validations:
            for attempt in validation.attempts:
                if attempt.id == number and attempt.token == token and not attempt.ending:
                    return validation, attempt
        return None

    def write(self, number: int, token: str, what: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Answer a write to a lease."""
        with self.lock:
            found = self.of_lease(number, token)
            if found is None:
                self.refused.append(what)
                return 409, {"type": "urn:ckptguard:problem:lease_lost", "detail": "the lease is over"}
            return self._write(*found, what, body)

    def _write(
        self, validation: Validation, attempt: Attempt, what: str, body: Mapping[str, Any]
    ) -> tuple[int, Any]:
        match what:
            case "heartbeat":
                attempt.expires_at = time.monotonic() + self.lease_s
                self.heartbeats.append(dict(body))
                return 200, {"expires_at": _BEFORE, "is_wanted": self.is_wanted}
            case "files":
                before = len(validation.files)
                for result in body["files"]:
                    validation.files[result["scan"]["path"]] = result
                return 200, {"stored": len(body["files"]), "new": len(validation.files) - before}
            case "verdict" if len(validation.files) < self.verdict_after_files:
                return 503, {}
            case "verdict":
                validation.reports.append(body["report"])
                attempt.ending = "finished"
                return 200, {"verdict": body["report"]["verdict"], "is_in_force": True}
            case "release":
                attempt.ending, attempt.reason = body["ending"], body["reason"]
                return 204, None
        return 404, {"detail": what}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: LeaseService

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        _, _, _, number, what = url.path.split("/")
        with self.service.lock:
            found = self.service.of_lease(int(number), self.headers["Ckptguard-Lease"])
            if self.service.is_down:
                self._answer(503, {})
            elif found is None:
                self._answer(409, {"type": "urn:ckptguard:problem:lease_lost"})
            elif what == "files":
                self._answer(200, {"files": list(found[0].files.values())})
            else:
                part = parse_qs(url.query, keep_blank_values=True)["part"][0]
                self._answer(200, found[0].manifests[part])

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.service.is_down:
            self._answer(503, {})
        elif self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._answer(401, {"type": "urn:ckptguard:problem:unauthorized"})
        elif self.path == "/v1/leases":
            self._answer(*self.service.take(_strict(body)))
        else:
            _, _, _, number, what = self.path.split("/")
            token = self.headers["Ckptguard-Lease"]
            answer = self.service.write(int(number), token, what, _strict(body))
            self._answer(*answer)

    def _answer(self, status: int, body: object) -> None:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json" if status >= 400 else "application/json")
        self.send_header("Content-Length", str(len(content)))
        with suppress(BrokenPipeError):  # of a worker that was killed
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _strict(body: bytes) -> dict[str, Any]:
    def refuse(text: str) -> None:
        msg = f"{text} is not JSON"
        raise ValueError(msg)

    value: dict[str, Any] = json.loads(body, parse_constant=refuse)
    return value


@contextmanager
def lease_service() -> Iterator[LeaseService]:
    """Run the server on a free port of this machine."""
    service = LeaseService()
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield service
    server.shutdown()
    server.server_close()
    thread.join()


def eventually(
    is_so: Callable[[], Any],
    *,
    within_s: float = 120.0,
    what: str = "it",
    said: Callable[[], str] | None = None,
) -> Any:  # noqa: ANN401
    """Wait until something is so, and return it; `said` is asked for what went on where it never is."""
    until = time.monotonic() + within_s
    while not (found := is_so()):
        told = said() if said is not None and time.monotonic() >= until else ""
        assert time.monotonic() < until, f"{what} did not come within {within_s} s; {told}"
        time.sleep(0.02)
    return found

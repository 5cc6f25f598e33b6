"""A real receiver of webhooks on a loopback port, which checks signatures by the published rule alone."""

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG = -1
"""Instead of a status: no answer until the receiver is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    def is_signed_with(self, secret: str) -> bool:
        """Check as a receiver would (standardwebhooks.com): any one of the signatures is enough."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        given = [part.partition(",") for part in self.headers["webhook-signature"].split(" ")]
        return any(version == "v1" and hmac.compare_digest(expected, value) for version, _, value in given)


@dataclass(kw_only=True)
class Receiver:
    """What came, and what is answered.

    Args:
        url: Where it listens.
        answers: Statuses to give, first one first; 200 when they are used up.
    """

    url: str = ""
    answers: list[int] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def next_answer(self) -> int:
        """Take the next status."""
        return self.answers.pop(0) if self.answers else 200


@contextmanager
def running_receiver(answers: list[int] | None = None) -> Iterator[Receiver]:
    """Yield a receiver that listens."""
    receiver = Receiver(answers=list(answers or []))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(path=self.path, headers=headers, body=body))
            status = receiver.next_answer()
            if status == HANG:
                receiver.closing.wait()
                return
            self.send_response(status)
            if status in range(300, 400):
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()

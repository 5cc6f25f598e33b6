"""The service behind a real server on a loopback port, in a thread of the test."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from ckptguard.model.service import Scope
from ckptguard_api.app import create_app
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.services import Services
from ckptguard_api.serving.listening import Listener
from ckptguard_api.serving.server import server_config
from ckptguard_api.settings import Settings
from ckptguard_api.use_cases.projects import create_project
from ckptguard_api.use_cases.tokens import TokenWish, create_token

_DEADLINE_S = 60.0


@dataclass(kw_only=True)
class ServedApp:
    """A running service.

    Args:
        url: Where it listens.
        services: What its routes share.
        app: The application.
        stop: Stops it, as a signal would; it is stopped anyway at the end.
    """

    url: str
    services: Services
    app: FastAPI
    stop: Callable[[], None]
    _clients: list[httpx.Client] = field(default_factory=list)

    def token(self, *scopes: Scope, project: str | None = None, expires_in_s: float | None = None) -> str:
        """Make a token; without scopes: `admin`."""
        wish = TokenWish(
            name="test",
            scopes=frozenset(scopes or {Scope.ADMIN}),
            project=project,
            expires_in_s=expires_in_s,
        )
        return create_token(self.services, wish, by=SERVICE).token.text

    def client(self, *scopes: Scope, project: str | None = None, acts_in: str | None = None) -> httpx.Client:
        """Return a client with a new token; without scopes: `admin`.

        Args:
            scopes: Of the token.
            project: The token's only project; None: all.
            acts_in: The header `Ckptguard-Project`.
        """
        headers = {"Authorization": f"Bearer {self.token(*scopes, project=project)}"}
        if acts_in is not None:
            headers["Ckptguard-Project"] = acts_in
        return self.new_client(**headers)

    def new_client(self, **headers: str) -> httpx.Client:
        """Return a client with these headers, and no token of its own."""
        client = httpx.Client(base_url=self.url, headers=headers, timeout=_DEADLINE_S, trust_env=False)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close every client and stop."""
        for client in self._clients:
            client.close()
        self.stop()


@contextmanager
def served_app(
    database: Database,
    *,
    settings: Settings | None = None,
    projects: tuple[str, ...] = ("default",),
    port: int = 0,
) -> Iterator[ServedApp]:
    """Yield a running service on this database, with these projects; `port` 0 is a free one."""
    settings = settings or Settings(database_url=SecretStr(_url_of(database)), data_dir=Path("unused"))
    services = Services(database=database, settings=settings)
    for name in projects:
        create_project(services, name, (), by=SERVICE)
    app = create_app(services)
    listener = Listener(host="127.0.0.1", port=port)
    listening = listener.open()
    url = listener.url(listening.getsockname()[1])
    server = uvicorn.Server(server_config(app, listener))
    thread = threading.Thread(target=server.run, args=([listening],), name="served-app")
    thread.start()

    def stop() -> None:
        if thread.is_alive() and server.started:
            server.servers[0].get_loop().call_soon_threadsafe(services.stopping.set)
        server.should_exit = True
        thread.join(_DEADLINE_S)
        assert not thread.is_alive(), "the server did not stop"

    try:
        _wait_until(lambda: server.started or not thread.is_alive())
        assert server.started, "the server did not start"
        served = ServedApp(url=url, services=services, app=app, stop=stop)
        yield served
        served.close()
    finally:
        stop()


def _url_of(database: Database) -> str:
    return database.engine.url.render_as_string(hide_password=False)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)

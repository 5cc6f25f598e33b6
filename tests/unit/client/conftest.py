"""A scripted service, and both clients of it behind one face."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stamina.instrumentation

from ckptguard.client import Address, AsyncClient, Client, exchange
from ckptguard.client.call import Call
from tests.scripted_service import TOKEN, ScriptedService, scripted_service

Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between two tries, and keep stamina from telling of them."""
    monkeypatch.setattr(exchange, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(exchange, "_JITTER_S", 0.01)
    stamina.instrumentation.set_on_retry_hooks(())


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """Return a server whose answers the test writes down."""
    with scripted_service() as running:
        yield running


def _ask(address: Address, call: Call[Any], deadline_s: float) -> object:
    with Client(address, deadline_s=deadline_s) as client:
        return client.send(call)


def _ask_async(address: Address, call: Call[Any], deadline_s: float) -> object:
    async def ask() -> object:
        async with AsyncClient(address, deadline_s=deadline_s) as client:
            return await client.send(call)

    return asyncio.run(ask())


@pytest.fixture(params=[_ask, _ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest, service: ScriptedService) -> Ask:
    """Return what makes one call of the scripted service, by each of the clients."""

    def make(call: Call[Any], *, deadline_s: float = 5.0, url: str | None = None) -> object:
        return request.param(Address.of(url or service.url, TOKEN), call, deadline_s)

    return make

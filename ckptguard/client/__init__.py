"""The typed client of the service: `Client` for threads, `AsyncClient` for event loops.

Both have the same methods (`methods.Methods`), built by the same code; only sockets differ.
The names are looked up when they are used: httpx takes 0.1 s to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ckptguard.client.address import Address, find_service
    from ckptguard.client.async_client import AsyncClient
    from ckptguard.client.attempt import attempt_key
    from ckptguard.client.bearer import Token
    from ckptguard.client.client import Client

__all__ = ["Address", "AsyncClient", "Client", "Token", "attempt_key", "find_service"]

_HOMES: Final = {
    "Address": "address",
    "AsyncClient": "async_client",
    "Client": "client",
    "Token": "bearer",
    "attempt_key": "attempt",
    "find_service": "address",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

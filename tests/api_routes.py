"""Every route of the app, with what it asks of a token."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from ckptguard.model.service import Scope
from ckptguard_api.doorkeeper import OPEN_PATHS
from ckptguard_api.pages.paths import is_page


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One method of one path.

    Args:
        method: Upper case.
        path: With `1` for each parameter.
        scopes: Any of these lets in; empty: none was asked for.
    """

    method: str
    path: str
    scopes: frozenset[Scope]


def doors(app: FastAPI) -> list[Door]:
    """Return every route that needs a bearer token: all but pages, which a browser's cookie opens."""
    found = [
        Door(
            method=method,
            path=re.sub(r"\{[^}]+\}", "1", route.path),
            scopes=frozenset(_scopes(route.dependant)),
        )
        for route in _api_routes(app)
        for method in sorted(route.methods or ())
        if route.path not in OPEN_PATHS and not is_page(route.path)
    ]
    assert len(found) > 5, "the routes were not found"
    return found


def _api_routes(app: FastAPI) -> Iterator[APIRoute]:
    for route in app.routes:
        # Newer versions of FastAPI keep a router that was included as it is.
        inner = getattr(route, "original_router", None)
        for candidate in inner.routes if inner is not None else [route]:
            if isinstance(candidate, APIRoute):
                yield candidate


def _scopes(dependant: Dependant) -> Iterator[Scope]:
    yield from getattr(dependant.call, "scopes", ())
    for inner in dependant.dependencies:
        yield from _scopes(inner)

"""Every page of the service, with addresses that show it at its largest, at its emptiest and at its worst.

A route that is neither here nor named as no page fails `test_every_route_is_a_page_or_said_to_be_none`, so
that a new page is held against the same rules as all others.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.routing import APIRoute

from ckptguard_api.pages.paths import is_page
from tests.pages.hostile_names import LONGEST, RUN_NAMES
from tests.pages.seeded import EMPTY, HEAVY, LARGE, Seeded

ROOT: Final = "/ui/in/default"
Addresses = Callable[[Seeded], Mapping[str, str]]

NO_PAGES: Final = frozenset({"/", "/ui"})
"""Routes that lead to a page."""
_NO_PAGE: Final = re.compile(r"\.(csv|json|part)$|/stream$|^/ui/static/")
"""Routes of files, of data that a page fetches, and of what a page listens to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One page as somebody opens it."""

    name: str
    path: str


def run_path(name: str, *further: str) -> str:
    """Return the path of a page of a run."""
    return "/".join((ROOT, "runs", quote(name, safe=""), *further))


def checkpoint_path(checkpoint_id: int, *further: str) -> str:
    """Return the path of a page of a checkpoint."""
    return "/".join((ROOT, "checkpoints", str(checkpoint_id), *further))


def _of_large(part: str) -> Addresses:
    return lambda where: {
        f"{part} of 100,000": checkpoint_path(where.damaged_large_id, part),
        f"{part} of 65": checkpoint_path(where.small_large_id, part),
    }


PAGES: Final[Mapping[str, Addresses]] = {
    "/ui/sign-in": lambda _: {"sign in": "/ui/sign-in"},
    "/ui/projects": lambda _: {"projects": "/ui/projects"},
    "/ui/in/{project}/runs": lambda _: {"runs": f"{ROOT}/runs"},
    "/ui/in/{project}/runs/{run}": lambda _: {
        "heavy run": run_path(HEAVY),
        "large run": run_path(LARGE),
        "empty run": run_path(EMPTY),
        "hostile run": run_path(RUN_NAMES[1]),
        "long run": run_path(LONGEST),
    },
    "/ui/in/{project}/checkpoints/{checkpoint_id}": lambda where: {
        "damaged checkpoint": checkpoint_path(where.damaged_large_id),
        "valid checkpoint": checkpoint_path(where.valid_large_id),
        "running checkpoint": checkpoint_path(where.running_large_id),
    },
    "/ui/in/{project}/checkpoints/{checkpoint_id}/files": _of_large("files"),
    "/ui/in/{project}/checkpoints/{checkpoint_id}/findings": _of_large("findings"),
    "/ui/in/{project}/checkpoints/{checkpoint_id}/tensors": _of_large("tensors"),
    "/ui/in/{project}/checkpoints/{checkpoint_id}/diff": lambda where: {
        "diff": checkpoint_path(where.damaged_large_id, f"diff?with={where.valid_large_id}"),
    },
    "/ui/in/{project}/validations/{validation_id}": lambda where: {
        "damaged validation": f"{ROOT}/validations/{where.damaged_validation_id}",
        "running validation": f"{ROOT}/validations/{where.running_validation_id}",
    },
    "/ui/in/{project}/findings/{code}": lambda _: {"about a code": f"{ROOT}/findings/crc_mismatch"},
    "/ui/in/{project}/workers": lambda _: {"workers": f"{ROOT}/workers"},
    "/ui/in/{project}/stores": lambda _: {"stores": f"{ROOT}/stores"},
    "/ui/in/{project}/events": lambda _: {"events": f"{ROOT}/events"},
}

EMPTY_PAGES: Final = tuple(
    Shown(name=f"no {part}", path=f"{ROOT}/{part}") for part in ("runs", "workers", "stores", "events")
)
"""The pages of a project in which nothing happened yet."""


def page_routes(app: FastAPI) -> set[str]:
    """Return the paths of all routes that show a page to whoever opens them."""
    return {path for path in _ui_routes(app) if path not in NO_PAGES and not _NO_PAGE.search(path)}


def shown_by(route: str, where: Seeded) -> list[Shown]:
    """Return every address at which the page of a route is looked at."""
    return [Shown(name=name, path=path) for name, path in PAGES[route](where).items()]


def _ui_routes(app: FastAPI) -> Iterator[str]:
    for route in app.routes:
        # Newer versions of FastAPI keep a router that was included as it is.
        inner = getattr(route, "original_router", None)
        for one in inner.routes if inner is not None else [route]:
            if isinstance(one, APIRoute) and "GET" in (one.methods or ()) and is_page(one.path):
                yield one.path

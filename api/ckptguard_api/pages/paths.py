"""Where pages lie, and which project an address names."""

from typing import Final
from urllib.parse import unquote, urlsplit

ROOT: Final = "/ui"
SIGN_IN: Final = f"{ROOT}/sign-in"
SIGN_OUT: Final = f"{ROOT}/sign-out"
PROJECTS: Final = f"{ROOT}/projects"
STATIC: Final = f"{ROOT}/static"

IN_PROJECT: Final = f"{ROOT}/in/{{project}}"
"""Prefix of the routes of everything that belongs to a project."""

_IN: Final = f"{ROOT}/in/"


def is_page(path: str) -> bool:
    """Say whether a path is for browsers."""
    return path in ("/", ROOT) or path.startswith(f"{ROOT}/")


def project_of_path(path: str) -> str | None:
    """Return the project that a page's path names; None: it belongs to none."""
    return path.removeprefix(_IN).partition("/")[0] if path.startswith(_IN) else None


def local_path(text: str) -> str:
    """Return a path of our own pages as it is; anything else becomes the first page."""
    parts = urlsplit(text)
    is_elsewhere = parts.scheme or parts.netloc or text.startswith("//") or "\\" in unquote(text)
    return text if is_page(parts.path) and not is_elsewhere else ROOT

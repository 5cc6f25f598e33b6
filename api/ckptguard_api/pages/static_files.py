"""Scripts and styles: a few files, read once, under names that change with their bytes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from ckptguard.errors import NotFoundError
from ckptguard_api.pages.paths import STATIC

router = APIRouter(include_in_schema=False)

_MEDIA_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_DIGEST_CHARS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _StaticFile:
    body: bytes
    digest: str
    media_type: str


def static_url(name: str) -> str:
    """Return where a file is served; a file of other bytes has another address.

    Args:
        name: Below `static`, e.g. `vendor/pico.min.css`.
    """
    return f"{STATIC}/{_files()[name].digest}/{name}"


@router.get(f"{STATIC}/{{digest}}/{{name:path}}")
async def static_file_route(digest: str, name: str) -> Response:
    """Serve one file, to be kept for ever."""
    found = _files().get(name)
    if found is None or found.digest != digest:
        msg = "no such file"
        raise NotFoundError(msg)
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(found.body, media_type=found.media_type, headers=headers)


@cache
def _files() -> Mapping[str, _StaticFile]:
    folder = files("ckptguard_api.pages") / "static"
    found = {}
    for prefix, place in (("", folder), ("vendor/", folder / "vendor")):
        for one in place.iterdir():
            media_type = _MEDIA_TYPES.get(one.name.rpartition(".")[2])
            if media_type is not None:
                body = one.read_bytes()
                digest = hashlib.sha256(body).hexdigest()[:_DIGEST_CHARS]
                found[prefix + one.name] = _StaticFile(body=body, digest=digest, media_type=media_type)
    return found

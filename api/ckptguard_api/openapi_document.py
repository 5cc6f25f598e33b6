"""The OpenAPI document: what FastAPI derives from the routes, and what holds for every route."""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ckptguard import __version__
from ckptguard_api.doorkeeper import OPEN_PATHS, PROJECT_HEADER
from ckptguard_api.problems import MEDIA_TYPE

_METHODS: Final = ("get", "put", "post", "delete", "patch")
_FOR_ALL: Final = {
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The token does not have the scope.",
    404: "No such thing, or it is another project's.",
    422: "The request breaks its rules; `problems` lists all of them.",
    429: "Too many at once; `Retry-After` says when to come again.",
    503: "The service or its database gave no answer; `Retry-After` says when to come again.",
}
_FOR_CHANGES: Final = {
    409: "It exists with other content, or its state forbids the change; nothing was changed.",
    413: "The body is beyond its limit.",
    415: "Neither JSON, nor encoded with gzip or zstd.",
}
_LEASE_LOST: Final = "The lease is over, or another's; nothing was written."
_PROBLEM: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "RFC 9457; `type` is `urn:ckptguard:problem:<code>`, and the code is stable.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "problems", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "problems": {"type": "array", "items": {"type": "string"}},
        "request_id": {"type": "string"},
    },
}
_PROJECT: Final[dict[str, Any]] = {
    "name": PROJECT_HEADER,
    "in": "header",
    "required": False,
    "description": "The project that a token of all projects acts in; `default` where it is missing.",
    "schema": {"type": "string", "maxLength": 200},
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document of an app; made once, then the same."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="ckptguard", version=__version__, routes=app.routes, description="docs/service.md"
        )
        _add_what_holds_for_all(document)
        app.openapi_schema = document
    return app.openapi_schema


def _add_what_holds_for_all(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, method, operation in _operations(document):
        if path in OPEN_PATHS:
            continue
        operation["security"] = [{"token": []}]
        operation.setdefault("parameters", []).append(_PROJECT)
        statuses = _FOR_ALL if method == "get" else _FOR_ALL | _FOR_CHANGES
        if path.startswith("/v1/leases/"):
            statuses |= {409: _LEASE_LOST}  # a lease that is over may not even be read
        for status, description in statuses.items():
            operation["responses"][str(status)] = _problem_response(description)


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def _problem_response(description: str) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": description, "content": content}

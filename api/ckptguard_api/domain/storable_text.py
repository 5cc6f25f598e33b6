"""Names and messages from checkpoints, as every database can hold them."""

from collections.abc import Mapping
from typing import Any


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates written out: PostgreSQL holds neither."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def storable_json(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Return a JSON value whose texts are all storable."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): storable_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(part) for part in value]
    return value

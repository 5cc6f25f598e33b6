"""A bearer token that nothing prints by accident."""

import re
from typing import Final

from ckptguard.errors import ConfigError

_MAX_CHARS: Final = 4096
_TOKEN: Final = re.compile(rf"[A-Za-z0-9._~+/=-]{{1,{_MAX_CHARS}}}", re.ASCII)  # RFC 6750 b64token
OWN_PREFIX: Final = "ckg_"
"""How every token of the service begins."""


class Token:
    """Holds a token; only `reveal` gives it out.

    Args:
        text: As the service made it; surrounding white space is dropped.

    Raises:
        ConfigError: It cannot be a bearer token. The message does not hold it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        stripped = text.strip()
        if _TOKEN.fullmatch(stripped) is None:
            msg = "that is no token: it is empty, too long, or holds characters that no token has"
            raise ConfigError(msg)
        self._text = stripped

    def reveal(self) -> str:
        """Return the token, for the header of one request."""
        return self._text

    @property
    def is_ours(self) -> bool:
        """Say whether it begins as the tokens of this service do."""
        return self._text.startswith(OWN_PREFIX)

    def __repr__(self) -> str:
        return "Token(...)"

    __str__ = __repr__

    def __reduce__(self) -> str:
        msg = "a token is not pickled"
        raise TypeError(msg)

"""What a token is: chance in, a name and a hash out; the token itself is never kept."""

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import Actor

PREFIX: Final = "ckg_"
"""So that scanners of repositories and logs can tell a token from other text."""

_CHANCE_BYTES: Final = 32
_SHAPE: Final = re.compile(r"ckg_[A-Za-z0-9_-]{43}")
_HINT_CHARS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token that was just made; the only moment at which its text is known.

    Args:
        text: `ckg_` and 43 characters that are safe in URLs: 256 bits of chance.
    """

    text: str

    @property
    def hash(self) -> str:
        """What is stored in its place."""
        return hash_token(self.text)

    @property
    def hint(self) -> str:
        """Its first characters: tells tokens apart, and gives 24 of 256 bits away."""
        return self.text[:_HINT_CHARS]

    def __repr__(self) -> str:
        return f"NewToken({self.hint}…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A good token, as far as a request needs it.

    Args:
        token_id: Its row.
        actor: Who acts.
        project_name: Of the token's one project; None: all projects.
        good_for_s: Seconds, from when it was read, until it ends by itself; None: never.
    """

    token_id: int
    actor: Actor
    project_name: str | None
    good_for_s: float | None


def new_token() -> NewToken:
    """Draw a token."""
    return NewToken(text=PREFIX + secrets.token_urlsafe(_CHANCE_BYTES))


def is_token_shaped(text: str) -> bool:
    """Say whether a text can be a token at all; others need no look at the database."""
    return _SHAPE.fullmatch(text) is not None


def hash_token(text: str) -> str:
    """Return the SHA-256 of a token, in hex.

    A plain hash is enough: what has 256 bits of chance cannot be guessed, salted or not.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def actor_of_token(*, name: str, hint: str, project_id: int | None, scopes: frozenset[Scope]) -> Actor:
    """Return who acts with a token, as the audit names it."""
    return Actor(name=f"token:{name} ({hint})", project_id=project_id, scopes=scopes)

"""Who asks, and in which project: a token and a header become a caller."""

import asyncio
from dataclasses import dataclass
from typing import Final

from ckptguard.errors import NotFoundError, UnauthorizedError
from ckptguard.model.service import Scope
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.tokens import Holder, actor_of_token, hash_token, is_token_shaped
from ckptguard_api.repositories.projects import find_project
from ckptguard_api.repositories.tokens import REVISION, find_token_by_hash, token_revision
from ckptguard_api.revisions.values import Revisions, RunKey
from ckptguard_api.services import Services

DEFAULT_PROJECT: Final = "default"
"""Where a token of all projects acts unless it names another."""

_REFUSED: Final = "no token that is known and good; see `Authorization: Bearer ckg_…`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a request may go on with.

    Args:
        holder: The token.
        project_id: The one project that the request acts in.
    """

    holder: Holder
    project_id: int

    @property
    def actor(self) -> Actor:
        """Who acts."""
        return self.holder.actor


def bearer_token(authorization: str | None) -> str:
    """Return the token of an `Authorization` header.

    Raises:
        UnauthorizedError: There is none, or it is no bearer token of ours.
    """
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not is_token_shaped(token.strip()):
        raise UnauthorizedError(_REFUSED)
    return token.strip()


async def access_of(
    services: Services, token: str, project_name: str | None, *, run: str | None = None
) -> tuple[Access, Revisions]:
    """Find who holds a token; from memory where no token was written since.

    Args:
        services: Of this process.
        token: As sent.
        project_name: The project that the request names; None: it names none.
        run: Name of a run whose revision the request will need: one query then reads all that it needs.

    Returns:
        The caller, and what was read since the request came; of `run` too, where its project was known.

    Raises:
        UnauthorizedError: The token is unknown, expired or revoked.
        NotFoundError: The project does not exist, or is not the token's.
    """
    seen = await services.revisions.read(_run_keys(services, token, project_name, run))
    revision = seen.named.get(REVISION, 0)
    recalled = recall_access(services, token, project_name, revision=revision)
    if recalled is not None:
        return recalled, seen
    if services.token_cache.is_refused(hash_token(token), revision=revision):
        raise UnauthorizedError(_REFUSED)
    return await asyncio.to_thread(grant_access, services, token, project_name), seen


def _run_keys(services: Services, token: str, project_name: str | None, run: str | None) -> list[RunKey]:
    # Only a guess at what to read: whoever reads the answer looks for the run of the project granted.
    known = None if run is None else last_known_access(services, token, project_name)
    return [] if known is None or run is None else [(known.project_id, run)]


def grant_access(services: Services, token: str, project_name: str | None) -> Access:
    """Do as `access_of` by asking the database."""
    with services.database.read() as tx:
        try:
            holder = _load_holder(tx, hash_token(token))
        except UnauthorizedError:
            services.token_cache.refuse(hash_token(token), revision=token_revision(tx))
            raise
        services.token_cache.put(hash_token(token), holder, revision=token_revision(tx))
        project_id = _project_of(tx, holder, project_name)
        if project_id is not None and holder.project_name is None:
            services.project_ids.put(project_name or DEFAULT_PROJECT, project_id)
    return Access(holder=holder, project_id=project_id)


def last_known_access(services: Services, token: str, project_name: str | None) -> Access | None:
    """Return who held a token when the database last answered; it may be revoked by now."""
    return recall_access(services, token, project_name, revision=services.token_cache.revision)


def recall_access(
    services: Services, token: str, project_name: str | None, *, revision: int
) -> Access | None:
    """Do as `access_of` from memory; None: the database must be asked."""
    holder = services.token_cache.find(hash_token(token), revision=revision)
    if holder is None:
        return None
    if holder.project_name is None:
        project_id = services.project_ids.find(project_name or DEFAULT_PROJECT)
    elif project_name in (None, holder.project_name):
        project_id = holder.actor.project_id
    else:
        project_id = None
    return None if project_id is None else Access(holder=holder, project_id=project_id)


def _load_holder(tx: Transaction, token_hash: str) -> Holder:
    # The index finds the row by the hash of what was sent. Its timing tells at most something about
    # SHA-256 of a guess, never how many characters of a token are right.
    row = find_token_by_hash(tx, token_hash)
    if row is None or row.revoked_at is not None:
        raise UnauthorizedError(_REFUSED)
    good_for_s = None if row.expires_at is None else (row.expires_at - tx.now).total_seconds()
    if good_for_s is not None and good_for_s <= 0:
        raise UnauthorizedError(_REFUSED)
    scopes = frozenset(Scope(scope) for scope in row.scopes)
    actor = actor_of_token(name=row.name, hint=row.hint, project_id=row.project_id, scopes=scopes)
    return Holder(token_id=row.id, actor=actor, project_name=row.project, good_for_s=good_for_s)


def _project_of(tx: Transaction, holder: Holder, name: str | None) -> int:
    if holder.actor.project_id is not None:
        if name not in (None, holder.project_name):
            raise _no_such_project(name)
        return holder.actor.project_id
    row = find_project(tx, name or DEFAULT_PROJECT)
    if row is None:
        raise _no_such_project(name or DEFAULT_PROJECT)
    return int(row.id)


def _no_such_project(name: str | None) -> NotFoundError:
    return NotFoundError(f"no project {name!r}")

"""What an embedded service needs before it can be used: a project, tokens, stores."""

from collections.abc import Callable, Mapping

from ckptguard.errors import ConfigError, ConflictError, InvalidRequestError, NotFoundError
from ckptguard.model.service import Scope
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.tokens import NewToken
from ckptguard_api.repositories.projects import add_project, find_project
from ckptguard_api.repositories.stores import is_any_allowed
from ckptguard_api.repositories.tokens import count_tokens, end_token, live_tokens_named, lock_tokens
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import DEFAULT_PROJECT
from ckptguard_api.use_cases.stores import create_store
from ckptguard_api.use_cases.tokens import TokenWish, add_new_token

_OPERATOR = TokenWish(name="operator", scopes=frozenset({Scope.ADMIN}))


def ensure_operator(services: Services, keep: Callable[[str], None], *, is_new_wanted: bool = False) -> bool:
    """Make the project `default`, and an admin token if there is no token at all.

    Args:
        services: Of this process.
        keep: Told the token before it becomes good: what is not kept would be lost for ever.
        is_new_wanted: Make another token anyway; its name tells it apart in the audit.

    Returns:
        Whether a token was made.
    """
    with services.database.write() as tx:
        lock_tokens(tx)
        if find_project(tx, DEFAULT_PROJECT) is None:
            add_project(tx, name=DEFAULT_PROJECT, allowed_globals=())
        is_made = is_new_wanted or count_tokens(tx) == 0
        if is_made:
            keep(add_new_token(tx, _OPERATOR, by=SERVICE).token.text)
    return is_made


def renew_worker_token(services: Services, name: str) -> NewToken:
    """Make a token with scope `work`, and end those of the same name.

    So a worker that outlived its service is refused by the next one, and ends.
    """
    with services.database.write() as tx:
        lock_tokens(tx)
        for row in live_tokens_named(tx, name):
            end_token(tx, row.id, revoked_at=tx.now)
        wish = TokenWish(name=name, scopes=frozenset({Scope.WORK}))
        return add_new_token(tx, wish, by=SERVICE).token


def end_worker_token(services: Services, name: str) -> None:
    """End the tokens of this name."""
    with services.database.write() as tx:
        lock_tokens(tx)
        for row in live_tokens_named(tx, name):
            end_token(tx, row.id, revoked_at=tx.now)


def ensure_stores(services: Services, stores: Mapping[str, str]) -> None:
    """Allow these roots in project `default`; one that is allowed already keeps its settings.

    Raises:
        ConfigError: A root cannot be used, or its name is that of another root; lists all of these.
    """
    with services.database.read() as tx:
        project = find_project(tx, DEFAULT_PROJECT)
    if project is None:
        msg = f"no project {DEFAULT_PROJECT!r}"
        raise NotFoundError(msg)
    problems: list[str] = []
    for name, url in stores.items():
        try:
            create_store(services, name, url, None, project_id=project.id, actor=SERVICE)
        except (InvalidRequestError, ConflictError) as error:
            problems.append(f"--store {name}: {error}")
    if problems:
        raise ConfigError("; ".join(problems))


def has_any_store(services: Services) -> bool:
    """Say whether any project allows a store."""
    with services.database.read() as tx:
        return is_any_allowed(tx)


def stores_of_settings(stores: Mapping[str, str]) -> str:
    """Return stores as `CKPTGUARD_STORES` says them."""
    return ",".join(f"{name}={url}" for name, url in stores.items())

"""Allow a store, list what is allowed, take it back."""

from collections.abc import Sequence
from os.path import realpath
from typing import Any

from ckptguard.errors import ConflictError, ForbiddenError, InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.own_folder import is_of_service
from ckptguard_api.domain.store_rules import MAX_STORES, StoreSettings, accepted_root, settings_values
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories import stores as rows
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.runs import lock_project
from ckptguard_api.repositories.stores import StoreRow
from ckptguard_api.services import Services


def create_store(
    services: Services, name: str, url: str, settings: StoreSettings | None, *, project_id: int, actor: Actor
) -> tuple[StoreRow, bool]:
    """Allow a store; of one that is there, set the settings.

    Args:
        services: Of this process.
        name: What workers map to a root of their own; they know no projects, so it means one place in all.
        url: Of its root.
        settings: Of its checks; None: those that it has, or the default ones.
        project_id: Whose.
        actor: Who asks. A root is a part of the machines of all: only a token of all projects may allow one.

    Returns:
        The store, and whether it is new.

    Raises:
        InvalidRequestError: With everything that is wrong with name and URL.
        ForbiddenError: The token has one project only, and the store is not there.
        ConflictError: The name stands for another URL, here or in another project; or the URL has another
            name.
    """
    root = accepted_root(name, url)
    if any(is_of_service(each, services.own_folders) for each in {root, _where_links_lead(root)}):
        msg = "the store is refused: it is the service's own folder, or lies in it"
        raise InvalidRequestError(msg, problems=["/url: the service's own folder, or a part of it"])
    with services.database.write() as tx:
        return _put(tx, name, root, settings, project_id=project_id, actor=actor)


def stores_of(
    services: Services, *, project_id: int, after_name: str | None, limit: int
) -> Sequence[StoreRow]:
    """Return the stores that are allowed now, by name."""
    with services.database.read() as tx:
        return rows.list_stores(tx, project_id, after_name=after_name, limit=limit)


def remove_store(services: Services, name: str, *, project_id: int, actor: Actor) -> None:
    """Allow a store no longer; nothing new is registered in it, and no worker is sent there.

    Raises:
        NotFoundError: There is none.
    """
    with services.database.write() as tx:
        lock_project(tx, project_id)
        row = rows.find_store(tx, project_id, name)
        if row is None or row.removed_at is not None:
            msg = f"no store {name[:80]!r}"
            raise NotFoundError(msg)
        rows.change_store(tx, row.id, {"removed_at": tx.now})
        _tell(tx, row, {"change": "removed"}, actor=actor)


def _where_links_lead(root: str) -> str:
    return f"file://{realpath(root.removeprefix('file://'))}" if root.startswith("file://") else root


def _put(
    tx: Transaction, name: str, root: str, settings: StoreSettings | None, *, project_id: int, actor: Actor
) -> tuple[StoreRow, bool]:
    lock_project(tx, project_id)
    there = rows.find_store(tx, project_id, name)
    if settings is None and there is not None:
        values = {key: getattr(there, key) for key in settings_values(StoreSettings())}
    else:
        values = settings_values(settings or StoreSettings())
    if (there is None or there.removed_at is not None) and actor.project_id is not None:
        msg = "only a token of all projects may allow a store"
        raise ForbiddenError(msg)
    _require_free(tx, name, root, there, project_id=project_id)
    if there is None:
        row = rows.add_store(tx, project_id=project_id, name=name, url=root, settings=values)
        _tell(tx, row, {"change": "added", **values}, actor=actor)
        return row, True
    is_removed = there.removed_at is not None
    if not is_removed and all(getattr(there, key) == value for key, value in values.items()):
        return there, False
    row = rows.change_store(tx, there.id, {**values, "removed_at": None})
    _tell(tx, row, {"change": "added" if is_removed else "settings", **values}, actor=actor)
    return row, is_removed


def _require_free(tx: Transaction, name: str, root: str, there: StoreRow | None, *, project_id: int) -> None:
    """Hold that a name means one place for ever, and a place has one name at a time."""
    if there is not None and there.url != root:
        msg = f"store {name!r} is {there.url}, and its checkpoints lie there; give {root} another name"
        raise ConflictError(msg)
    if there is None and rows.is_elsewhere(tx, name, other_than=root):
        msg = f"store {name!r} of another project lies elsewhere, and workers go by the name: take another"
        raise ConflictError(msg)
    same = [each for each in rows.list_stores(tx, project_id) if each.url == root and each.name != name]
    if same:
        msg = f"{root} is store {same[0].name!r} already"
        raise ConflictError(msg)
    if there is None and rows.count_stores(tx, project_id) >= MAX_STORES:
        msg = f"a project has at most {MAX_STORES} stores"
        raise ConflictError(msg)


def _tell(tx: Transaction, row: StoreRow, data: dict[str, Any], *, actor: Actor) -> None:
    about = Subject(project_id=row.project_id)
    record(
        tx, EventKind.STORE_CHANGED, actor=actor, about=about, data={"name": row.name, "url": row.url, **data}
    )

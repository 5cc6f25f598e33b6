"""The newest checkpoint that its format calls committed: what is left when nobody can be asked."""

from collections.abc import Iterator

from ckptguard.client.answers import Target
from ckptguard.errors import CkptGuardError
from ckptguard.formats.discover import discover
from ckptguard.model.policy import Limits
from ckptguard.operations.store_view import MAX_FILES, Spot, StoreView
from ckptguard.storage.listing import list_folder
from ckptguard.storage.paths import is_plain_path


def newest_committed(
    run: str, view: StoreView, remembered: Target | None, *, step: int | None = None
) -> tuple[str, int] | None:
    """Return path and step of the newest committed step of a run; nothing of it is proven.

    Looked for in the folder of the last answer, and as folder `run` of each store that this
    machine names.

    Args:
        run: Its name.
        view: The stores of this machine.
        remembered: The target of the last good answer.
        step: Only this one.
    """
    for spot in _folders(run, view, remembered):
        try:
            found = _newest_in(spot, step)
        except CkptGuardError:
            continue  # not there, or not to be listed: the next folder may be
        if found is not None:
            return found
    return None


def _folders(run: str, view: StoreView, remembered: Target | None) -> Iterator[Spot]:
    if remembered is not None and "/" in remembered.path:
        parent = remembered.path.rpartition("/")[0]
        yield view.spot(remembered.store, parent, remembered.url.rstrip("/").rpartition("/")[0])
    if is_plain_path(run):
        for name, root in sorted(view.roots.items()):
            yield view.spot(name, run, root)


def _newest_in(spot: Spot, step: int | None) -> tuple[str, int] | None:
    store, prefix = spot.open()
    listing = list_folder(store, prefix, max_files=MAX_FILES)
    steps = discover(store, listing, Limits()).steps
    committed = [found for found in steps if found.is_committed and step in {None, found.step}]
    newest = max(committed, key=lambda found: (found.step, found.path), default=None)
    return None if newest is None else (f"{spot.text}/{newest.path}", newest.step)

"""Where a checkpoint lies: in which store, at which path, and above or below which others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ckptguard.errors import LocationRefusedError
from ckptguard.model.manifest_laws import path_problems
from ckptguard.storage.allowed_urls import canonical_url, unsafe_url_reasons
from ckptguard.storage.redaction import redacted

_MAX_STORES_TOLD: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A store that the project allows.

    Args:
        store_id: Its row.
        name: Its name.
        url: Canonical (`ckptguard.storage.allowed_urls.canonical_url`).
    """

    store_id: int
    name: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLocation:
    """What a request names: `store` and `path`, or `url`."""

    store: str | None = None
    path: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A folder below a store's root.

    Args:
        store_id: Row of the store.
        store: Its name.
        path: Plain and relative to the store; never "".
        url: Canonical, of the folder itself. Two texts for one place are equal.
    """

    store_id: int
    store: str
    path: str
    url: str


def place(asked: AskedLocation, roots: Sequence[Root]) -> Location:
    """Map what a request names to a store and a path in it, by the text alone.

    A URL goes to the innermost store that holds it.

    Raises:
        LocationRefusedError: With every reason; where no store holds it, with what would allow it.
    """
    if asked.url is not None and asked.store is None and asked.path is None:
        return _place_url(asked.url, roots)
    if asked.store is not None and asked.path is not None and asked.url is None:
        return _place_path(asked.store, asked.path, roots)
    raise _refused(["/location: either store and path, or url"])


def ancestors_of(url: str) -> tuple[str, ...]:
    """Return every canonical location above this one, nearest first."""
    scheme, _, rest = url.partition("://")
    segments = rest.split("/")
    return tuple(f"{scheme}://{'/'.join(segments[:end])}" for end in range(len(segments) - 1, 0, -1))


def range_below(url: str) -> tuple[str, str]:
    """Return bounds, half-open, between which lie exactly the canonical locations below this one.

    Locations compare by their bytes, in which `/` is followed by `0`: `step-1` holds nothing of `step-10`.
    """
    return f"{url}/", f"{url}0"


def is_at_or_below(url: str, folder: str) -> bool:
    """Say whether a canonical location is this folder or lies in it."""
    return url == folder or url.startswith(f"{folder}/")


def _place_url(url: str, roots: Sequence[Root]) -> Location:
    reasons = unsafe_url_reasons(url)
    if reasons:
        raise _refused([f"/location/url: {reason}" for reason in reasons])
    canonical = canonical_url(url)
    holders = [root for root in roots if is_at_or_below(canonical, root.url)]
    if not holders:
        raise _outside(canonical, roots)
    root = max(holders, key=lambda holder: len(holder.url))
    path = canonical[len(root.url) + 1 :]
    if not path:
        raise _refused([f"/location/url: the root of store {root.name!r} itself; name a folder below it"])
    return Location(store_id=root.store_id, store=root.name, path=path, url=canonical)


def _place_path(store: str, path: str, roots: Sequence[Root]) -> Location:
    plain = path.rstrip("/")
    problems = [f"/location/path{problem}" for problem in path_problems(plain, at="")]
    root = next((root for root in roots if root.name == store), None)
    if root is None:
        problems.append(f"/location/store: no store {store[:80]!r}; {_known(roots)}")
    elif not problems:
        problems.extend(f"/location/path: {reason}" for reason in unsafe_url_reasons(f"{root.url}/{plain}"))
    if root is None or problems:
        raise _refused(problems)
    return Location(store_id=root.store_id, store=root.name, path=plain, url=f"{root.url}/{plain}")


def _refused(problems: Sequence[str]) -> LocationRefusedError:
    msg = f"the location is refused: {'; '.join(problems)}"
    return LocationRefusedError(msg, problems=problems)


def _outside(url: str, roots: Sequence[Root]) -> LocationRefusedError:
    parent = (ancestors_of(url) or (url,))[0].removeprefix("file://")
    problem = (
        f"/location/url: {redacted(url)} lies in no store that this project allows ({_known(roots)}); "
        f"`ckptguard serve --store NAME={redacted(parent)}` or POST /v1/stores would allow it"
    )
    return _refused([problem])


def _known(roots: Sequence[Root]) -> str:
    told = ", ".join(_told(roots))
    return f"stores: {told}" if told else "there is no store yet"


def _told(roots: Sequence[Root]) -> Iterator[str]:
    for root in roots[:_MAX_STORES_TOLD]:
        yield f"{root.name}={root.url.removeprefix('file://')}"
    if len(roots) > _MAX_STORES_TOLD:
        yield f"and {len(roots) - _MAX_STORES_TOLD} more"

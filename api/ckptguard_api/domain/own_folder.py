"""The service's own folder is no store: its database, its token and its address lie there."""

from collections.abc import Sequence

from ckptguard_api.domain.locations import is_at_or_below


def is_of_service(url: str, own: Sequence[str]) -> bool:
    """Say whether a canonical URL is the service's folder, or lies in it.

    Args:
        url: Of a store's root, or of a location.
        own: Canonical URLs of the folder, in each spelling that it has.
    """
    return any(is_at_or_below(url, folder) for folder in own)


def holds_service(url: str, own: Sequence[str]) -> bool:
    """Say whether a canonical URL is the service's folder, lies in it, or holds it.

    A store may hold the folder, e.g. where it is the default below the working folder; a checkpoint may not.
    """
    return is_of_service(url, own) or any(is_at_or_below(folder, url) for folder in own)

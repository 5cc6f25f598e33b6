"""Store-relative paths: what may be handed to a store at all."""

from ckptguard.errors import PathEscapeError


def is_plain_path(path: str) -> bool:
    """Say whether `path` names something below a root: no `.`, `..`, empty segment, NUL or leading `/`.

    Law: joining a plain path to any folder stays inside that folder, link targets aside.
    """
    return "\0" not in path and all(segment not in ("", ".", "..") for segment in path.split("/"))


def require_plain(path: str) -> str:
    """Return `path` unchanged.

    Raises:
        PathEscapeError: It is not plain; nothing was asked of any store.
    """
    if not is_plain_path(path):
        msg = "not a plain relative path"
        raise PathEscapeError(msg, key=path)
    return path


def require_folder(prefix: str) -> str:
    """Return a folder's path without its closing `/`; "" is the root itself.

    Raises:
        PathEscapeError: It is not plain.
    """
    folder = prefix.removesuffix("/")
    return require_plain(folder) if folder else ""


def join(folder: str, path: str) -> str:
    """Return `path` below `folder`; either may be "" for the root itself."""
    return f"{folder}/{path}" if folder and path else folder or path

"""A torch file system that remembers the length and checksum of every file written through it."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemBase

from ckptguard.integrations.dcp.hashing_stream import HashingStream
from ckptguard.model.checksum import Checksum

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One file that was written to its end and closed.

    Args:
        path: Relative to the folder of the save.
        length_bytes: Bytes that it took.
        checksum: Of them; None where they did not come in order.
    """

    path: str
    length_bytes: int
    checksum: Checksum | None


class RecordingFileSystem(FileSystemBase):
    """Delegates everything; a file that is opened with `wb` is hashed on its way.

    Args:
        inner: torch's own, local or fsspec.
        options: Given to `init_path` again each time: torch's fsspec writer loses them on `reset`.
    """

    def __init__(self, inner: Any, options: Mapping[str, Any] | None = None) -> None:
        self._inner = inner
        self._options = dict(options or {})
        self._lock = threading.Lock()
        self._written: dict[str, WrittenFile] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process without lock and memory."""
        return type(self), (self._inner, self._options)

    @property
    def inner(self) -> Any:
        """Return torch's file system."""
        return self._inner

    def forget_all(self) -> None:
        """Begin a save."""
        with self._lock:
            self._written.clear()

    def written(self, folder: PathLike) -> tuple[WrittenFile, ...]:
        """Return the files written since then, with paths relative to a folder, in order of their end."""
        above = f"{os.fspath(folder).rstrip('/')}/"
        with self._lock:
            known = list(self._written.items())
        return tuple(replace(file, path=name.removeprefix(above)) for name, file in known)

    @contextmanager
    def create_stream(self, path: PathLike, mode: str) -> Iterator[Any]:
        """Open a file; it is remembered once it was closed without an error."""
        name = os.fspath(path)
        if mode != "wb":
            if mode != "rb":
                self._forget(name)
            with self._inner.create_stream(path, mode) as plain:
                yield plain
            return
        self._forget(name)
        with self._inner.create_stream(path, mode) as raw:
            stream = HashingStream(raw)
            try:
                yield stream
                stream.finish()
            finally:
                stream.abandon()
        written = WrittenFile(path=name, length_bytes=stream.length_bytes, checksum=stream.checksum)
        with self._lock:
            self._written[name] = written

    def concat_path(self, path: PathLike, suffix: str) -> PathLike:
        """Delegate."""
        joined: PathLike = self._inner.concat_path(path, suffix)
        return joined

    def rename(self, path: PathLike, new_path: PathLike) -> None:
        """Delegate, and remember the file under its new name."""
        self._inner.rename(path, new_path)
        with self._lock:
            moved = self._written.pop(os.fspath(path), None)
            self._written.pop(os.fspath(new_path), None)
            if moved is not None:
                self._written[os.fspath(new_path)] = moved

    def init_path(self, path: PathLike, **options: Any) -> PathLike:
        """Delegate, with the options of the writer."""
        made: PathLike = self._inner.init_path(path, **{**self._options, **options})
        return made

    def mkdir(self, path: PathLike) -> None:
        """Delegate."""
        self._inner.mkdir(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: PathLike) -> bool:
        """Say no: torch asks the classes of its own file systems."""
        del checkpoint_id
        return False

    def exists(self, path: PathLike) -> bool:
        """Delegate."""
        return bool(self._inner.exists(path))

    def rm_file(self, path: PathLike) -> None:
        """Delegate, and forget the file."""
        self._inner.rm_file(path)
        self._forget(os.fspath(path))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._written.pop(name, None)

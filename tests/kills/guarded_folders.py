"""Where a campaign keeps its checkpoints, and the verdict on them."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.operations.place import Place
from ckptguard.operations.validate import validate_in

POLICY: Final = Policy(depth=Depth.CONTENT, settle_s=0.0)
"""Of every verdict here: stock itself loads what is VALID."""


class Folders(Protocol):
    """Checkpoints by name, as a writer, ckptguard and stock torch see them."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Return what a writer has to be told."""

    def target(self, name: str) -> str:
        """Return what a writer writes to."""

    def copy(self, source: str, name: str) -> None:
        """Copy a checkpoint, with its times where the storage keeps them."""

    def remove(self, name: str) -> None:
        """Remove a checkpoint."""

    def report(self, name: str) -> Report | None:
        """Return the verdict; None where nothing is there."""

    def files(self, name: str) -> AbstractContextManager[Path]:
        """Give its files as a folder of this machine."""


class LocalFolders:
    """Below a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.options: Mapping[str, Any] = {}

    def target(self, name: str) -> str:
        """Return the path; the folder above is there, or which rank makes it would be left to chance."""
        (self._root / name).parent.mkdir(parents=True, exist_ok=True)
        return str(self._root / name)

    def copy(self, source: str, name: str) -> None:
        """Copy files and times."""
        shutil.copytree(self._root / source, self._root / name)

    def remove(self, name: str) -> None:
        """Remove the folder."""
        shutil.rmtree(self._root / name, ignore_errors=True)

    def report(self, name: str) -> Report | None:
        """Return the verdict."""
        folder = self._root / name
        if not folder.exists() or not any(folder.iterdir()):
            return None
        return validate_in(Place.of(str(folder)), policy=POLICY)

    @contextmanager
    def files(self, name: str) -> Iterator[Path]:
        """Give the folder itself."""
        yield self._root / name

"""Checkpoints of a campaign below a folder of a bucket."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import s3fs

from ckptguard.model.report import Report
from ckptguard.operations.place import Place
from ckptguard.operations.validate import validate_in
from tests.integration.s3_server import S3Server
from tests.kills.guarded_folders import POLICY


class BucketFolders:
    """Below a folder of a bucket."""

    def __init__(self, server: S3Server, root: str) -> None:
        self._server = server
        self._root = f"{server.bucket}/{root}"
        self._driver = s3fs.S3FileSystem(
            skip_instance_cache=True, use_listings_cache=False, **server.options()
        )
        self.options: Mapping[str, Any] = server.options()

    def target(self, name: str) -> str:
        """Return the URL."""
        return f"s3://{self._root}/{name}"

    def copy(self, source: str, name: str) -> None:
        """Copy the objects."""
        for key in self._driver.find(f"{self._root}/{source}"):
            self._driver.copy(key, f"{self._root}/{name}/{key.rpartition('/')[2]}")

    def remove(self, name: str) -> None:
        """Remove the objects."""
        for key in self._driver.find(f"{self._root}/{name}"):
            self._driver.rm_file(key)

    def report(self, name: str) -> Report | None:
        """Return the verdict on what is in the bucket."""
        if not self._driver.find(f"{self._root}/{name}"):
            return None
        return validate_in(Place.of(self.target(name), options=self._server.options()), policy=POLICY)

    @contextmanager
    def files(self, name: str) -> Iterator[Path]:
        """Give a copy."""
        with tempfile.TemporaryDirectory(prefix="ckg-objects-") as folder:
            for key in self._driver.find(f"{self._root}/{name}"):
                self._driver.get_file(key, f"{folder}/{key.rpartition('/')[2]}")
            yield Path(folder)

"""From what was found to what the service is told: metadata and manifests are read, shards are not."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from ckptguard.client.answers import Registered
from ckptguard.client.call import Call
from ckptguard.client.calls import register
from ckptguard.errors import CkptGuardError, ManifestFormatError
from ckptguard.formats.dcp_metadata import read_metadata
from ckptguard.formats.folder_tree import join
from ckptguard.model.manifest import Manifest
from ckptguard.model.policy import Depth, Limits
from ckptguard.operations.adopt.found import Found, listing_of
from ckptguard.operations.adopt.sweep import Sweep
from ckptguard.operations.manifests_beside import load_manifest_beside, manifest_folders
from ckptguard.operations.register import as_found, location_of, manifest_values
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store, read_whole

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One checkpoint, ready to be told.

    Args:
        found: It.
        is_validated: A verdict is asked for.
        manifests: That lie beside its shards, one for each part.
        save_id: torch's; None: there is none, or the manifests tell.
        absent: Shards that its metadata names and that are missing or short.
        notes: For a person.
        error: Why it could not be read; nothing else is then known.
    """

    found: Found
    is_validated: bool
    manifests: tuple[Manifest, ...] = ()
    save_id: str | None = None
    absent: int = 0
    notes: tuple[str, ...] = ()
    error: CkptGuardError | None = None

    def calls(
        self, location: Mapping[str, str], depth: Depth, *, is_bare: bool = False
    ) -> tuple[Call[Registered], ...]:
        """Return the requests that tell of it.

        Args:
            location: Of the checkpoint.
            depth: Of its validation.
            is_bare: Say no more than what names the save: nothing that later sidecars change.
        """
        if self.manifests:
            told = self.manifests
            return tuple(self._with_manifest(manifest, location, depth) for manifest in told)
        found = self.found
        call = register(
            found.run,
            step=found.step,
            location=location,
            save_id=self.save_id,
            format=None if is_bare else "+".join(found.formats),
            num_files=None if is_bare else found.num_files,
            bytes_total=None if is_bare else found.bytes_total,
            created_at=None if is_bare and self.save_id is not None else found.created_at,
            depth=depth,
            validate=self.is_validated,
        )
        return (call,)

    def _with_manifest(
        self, manifest: Manifest, location: Mapping[str, str], depth: Depth
    ) -> Call[Registered]:
        return register(
            self.found.run,
            step=self.found.step,
            location=location,
            save_id=manifest.save_id,
            manifest=manifest_values(manifest),
            depth=depth,
            validate=self.is_validated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads what checkpoints say of themselves.

    Args:
        sweep: Where they were found.
        limits: Bounds on metadata.
    """

    sweep: Sweep
    limits: Limits = field(default_factory=Limits)

    def prepare(self, found: Found, *, is_validated: bool) -> Prepared:
        """Read one; what cannot be read is in the answer, so that the others go on."""
        listing = listing_of(self.sweep.tree, found.folder)
        try:
            manifests, notes = _manifests(self.sweep.store, listing)
            save_id, absent = self._saved(found, listing, is_needed=not manifests)
        except CkptGuardError as error:
            return Prepared(found=found, is_validated=is_validated, error=error)
        for folder, manifest in manifests.items():
            paths = {join(folder, file.path): file.length_bytes for file in manifest.files}
            absent += _not_whole(listing, paths)
        return Prepared(
            found=found,
            is_validated=is_validated,
            manifests=tuple(manifests.values()),
            save_id=save_id,
            absent=found.absent + absent,
            notes=notes,
        )

    def _saved(self, found: Found, listing: Listing, *, is_needed: bool) -> tuple[str | None, int]:
        """Return the save id where all parts have the same, and how many shards are not whole."""
        save_ids: set[str | None] = set()
        absent = 0
        for path in found.metadata if is_needed else ():
            data = read_whole(
                self.sweep.store, listing.in_store(path), max_bytes=self.limits.max_metadata_bytes
            )
            tables = read_metadata(data, file=path, limits=self.limits)
            save_ids.add(tables.save_id)
            folder = path.rpartition("/")[0]
            lengths = {join(folder, shard.path): shard.min_length_bytes for shard in tables.shards}
            absent += _not_whole(listing, lengths)
        return (save_ids.pop() if len(save_ids) == 1 else None), absent


def location(sweep: Sweep, found: Found, stores: Mapping[str, str]) -> Mapping[str, str]:
    """Return where a checkpoint is, as the service is told."""
    listing = sweep.tree.listing
    path = listing.in_store(found.folder) if found.folder else listing.root
    return location_of(sweep.store, path, stores)


def mapped_ahead(function: Callable[[T], U], items: Iterator[T], *, threads: int) -> Iterator[U]:
    """Yield the function's answers in order, computed by a few threads while the caller is busy.

    Guarantees: at most four items a thread are in work or waiting.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="ckptguard-adopt") as executor:
        waiting = deque(executor.submit(function, item) for item in islice(items, 4 * threads))
        try:
            while waiting:
                answer = waiting.popleft().result()
                waiting.extend(executor.submit(function, item) for item in islice(items, 1))
                yield answer
        finally:
            for future in waiting:
                future.cancel()


def _manifests(store: Store, listing: Listing) -> tuple[dict[str, Manifest], tuple[str, ...]]:
    """Return the manifests beside the shards by folder; none where one cannot be used: a check says so."""
    try:
        return {folder: _manifest_in(store, listing, folder) for folder in manifest_folders(listing)}, ()
    except ManifestFormatError as error:
        return {}, (f"registered without its manifest: {error}",)


def _manifest_in(store: Store, listing: Listing, folder: str) -> Manifest:
    beside = load_manifest_beside(store, listing, folder=folder)
    if beside.manifest is None:
        problems = [finding.message for finding in beside.findings]
        raise ManifestFormatError(problems or [f"no usable manifest in {folder or 'the folder'}"])
    return as_found(beside.manifest)


def _not_whole(listing: Listing, lengths: Mapping[str, int]) -> int:
    """Count the files that are missing, or shorter than their metadata says."""
    stats = ((listing.files.get(path), at_least) for path, at_least in lengths.items())
    return sum(stat is None or stat.length_bytes < at_least for stat, at_least in stats)

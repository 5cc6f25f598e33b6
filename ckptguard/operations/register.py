"""`register`: from a folder to what the service is told about it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ckptguard.client.answers import Registered
from ckptguard.client.call import Call
from ckptguard.client.calls import register as register_call
from ckptguard.client.decode import parse_json
from ckptguard.errors import ConfigError, ManifestFormatError, ObjectNotFoundError
from ckptguard.formats.checkpoint import Checkpoint
from ckptguard.formats.discover import discover
from ckptguard.formats.manifest_json import to_json
from ckptguard.model.manifest import ChecksumSource, Manifest, Origin
from ckptguard.model.policy import Depth, Limits
from ckptguard.operations.look import below_root
from ckptguard.operations.manifest import load_manifest
from ckptguard.operations.manifests_beside import load_manifest_beside, manifest_folders
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.open_url import open_location, split_url
from ckptguard.storage.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user said.

    Args:
        target: Path or URL of the checkpoint, or of a folder of steps with `step`.
        run: Its run.
        step: None: what the manifest or the folder's name tells.
        save_id: None: what the manifest or the metadata tells.
        manifest: File to take instead of what lies beside the shards.
        stores: Store name to its root on this machine.
        depth: Of the validation.
        is_validated: Ask for a verdict.
    """

    target: str
    run: str
    step: int | None = None
    save_id: str | None = None
    manifest: Path | None = None
    stores: Mapping[str, str]
    depth: Depth = Depth.LOAD
    is_validated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One request: a checkpoint without a manifest, or one part with its own.

    Args:
        call: What is sent.
        step: Of the checkpoint.
        location: Of the checkpoint, as it is told.
        manifest: Of this part.
    """

    call: Call[Registered]
    step: int
    location: Mapping[str, str]
    manifest: Manifest | None


def registrations(wish: Wish) -> tuple[Registration, ...]:
    """List a checkpoint, read what it says of itself, and return what to tell the service.

    No shard is read. Where several folders of the checkpoint hold a manifest, each is a part
    and a registration of its own.

    Raises:
        ObjectNotFoundError: There is no checkpoint.
        ConfigError: No step is given and none can be told.
        ManifestFormatError: A manifest beside the shards cannot be used; all problems.
        StoreError, LimitExceededError: It could not be listed.
    """
    store, prefix = open_location(wish.target)
    limits = Limits()
    listing = list_folder(store, prefix, max_files=limits.max_files)
    checkpoint = discover(store, listing, limits, step=wish.step)
    if not checkpoint.layouts:
        seen = "; ".join(checkpoint.sightings) or "no file at all"
        msg = f"no checkpoint that any format recognises; seen: {seen}"
        raise ObjectNotFoundError(msg, key=wish.target)
    here = below_root(listing, checkpoint.root)
    location = location_of(store, checkpoint.root, wish.stores)
    manifests = tuple(_manifests(store, here, wish))
    if not manifests:
        return (_without_manifest(wish, checkpoint, here, location),)
    return tuple(_with_manifest(wish, manifest, location) for manifest in manifests)


def location_of(store: Store, path: str, stores: Mapping[str, str]) -> dict[str, str]:
    """Return a location as the service is told: by store where this machine knows it, else by URL."""
    root = store.url.rstrip("/")
    return _location(f"{root}/{path}" if path else root, stores)


def announced_location(target: str, stores: Mapping[str, str]) -> dict[str, str]:
    """Return a location that need not be there yet.

    Raises:
        ConfigError: A URL that cannot be one of a checkpoint.
    """
    scheme, separator, rest = target.partition("://")
    if separator and scheme not in {"file", "local"}:
        root, path = split_url(target)
        return _location(f"{root}/{path}".rstrip("/"), stores)
    return _location(os.path.realpath(rest if separator else target), stores)


def _location(url: str, stores: Mapping[str, str]) -> dict[str, str]:
    for name, store_root in sorted(stores.items()):
        local = store_root.removeprefix("file://")
        base = (local if "://" in local else str(Path(local).resolve())).rstrip("/")
        if url.startswith(f"{base}/"):
            return {"store": name, "path": url.removeprefix(f"{base}/")}
    return {"url": url}


def _manifests(store: Store, listing: Listing, wish: Wish) -> Iterator[Manifest]:
    if wish.manifest is not None:
        yield load_manifest(wish.manifest)
        return
    for folder in manifest_folders(listing):
        beside = load_manifest_beside(store, listing, folder=folder)
        if beside.manifest is None:
            problems = [finding.message for finding in beside.findings]
            raise ManifestFormatError(problems or [f"no usable manifest in {folder or 'the folder'}"])
        yield as_found(beside.manifest)


def as_found(manifest: Manifest) -> Manifest:
    """Return what a manifest beside the shards says, as said by whoever may write to the store.

    Only the writer's own POST proves provenance (design §3). The identity stays the same, so that
    POST, before or after, counts for more and is no conflict.
    """
    files = tuple(replace(file, checksum_source=ChecksumSource.STORAGE) for file in manifest.files)
    return replace(manifest, origin=Origin.READ_BACK, files=files)


def _with_manifest(wish: Wish, manifest: Manifest, location: dict[str, str]) -> Registration:
    step = manifest.step if wish.step is None else wish.step
    call = register_call(
        wish.run,
        step=step,
        location=location,
        save_id=wish.save_id or manifest.save_id,
        manifest=manifest_values(manifest),
        depth=wish.depth,
        validate=wish.is_validated,
    )
    return Registration(call=call, step=step, location=location, manifest=manifest)


def manifest_values(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as JSON values."""
    values: dict[str, Any] = parse_json(to_json(manifest))
    return values


def _without_manifest(
    wish: Wish, checkpoint: Checkpoint, listing: Listing, location: dict[str, str]
) -> Registration:
    step = checkpoint.step if wish.step is None else wish.step
    if step is None:
        msg = "the folder's name tells no step; give one: --step N"
        raise ConfigError(msg)
    layouts = checkpoint.layouts
    call = register_call(
        wish.run,
        step=step,
        location=location,
        save_id=wish.save_id or _save_id(checkpoint),
        format="+".join(sorted({layout.format for layout in layouts})),
        num_files=len(listing.files),
        bytes_total=sum(stat.length_bytes for stat in listing.files.values()),
        created_at=_committed_at(checkpoint, listing),
        depth=wish.depth,
        validate=wish.is_validated,
    )
    return Registration(call=call, step=step, location=location, manifest=None)


def _save_id(checkpoint: Checkpoint) -> str | None:
    """Return torch's save id, where all parts have one and the same."""
    found = {layout.save_id for layout in checkpoint.layouts}
    return found.pop() if len(found) == 1 else None


def _committed_at(checkpoint: Checkpoint, listing: Listing) -> datetime | None:
    """Return when the newest metadata file was written: writers leave it for last."""
    paths = {file.path for layout in checkpoint.layouts for file in layout.metadata_files}
    stats = [stat for path, stat in listing.files.items() if path in paths] or list(listing.files.values())
    return max((stat.modified_at for stat in stats if stat.modified_at is not None), default=None)

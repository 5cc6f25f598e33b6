"""The Orbax adapter: arrays of JAX, as Zarr files or in an OCDBT database.

A checkpoint is a folder with `_METADATA` (one item), or one with `_CHECKPOINT_METADATA` and a
folder for each item. Arrays are cut into chunks; which there must be follows from each array's
own metadata. Chunks carry no checksum (zstd as Orbax writes it has none): that one decodes to
the bytes of its elements is all that is proven of it. Nodes of a database have CRC-32Cs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ckptguard.errors import FormatError, LimitExceededError
from ckptguard.formats.dcp_findings import FindingBag, not_opened, shown
from ckptguard.formats.metadata_files import malformed, not_read, parse_json, read_file
from ckptguard.formats.ocdbt import MANIFEST
from ckptguard.formats.orbax_store import KeyMap, array_names, read_key_map, read_value
from ckptguard.formats.orbax_tree import (
    CHECKPOINT,
    COMMIT_MARKER,
    TREE,
    Tree,
    check_commit,
    is_plain_name,
    items_of,
    read_tree,
)
from ckptguard.formats.zarr_arrays import V2_NAME, V3_NAME, ZarrArray, parse_array
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, MetadataFile, Shard, Slice, Tensor
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

FORMAT: Final = "orbax"
STOCK_READER_GAP: Final = "an Orbax checkpoint of JAX arrays: torch does not read it"


class OrbaxAdapter:
    """The format `orbax`."""

    name = FORMAT

    def recognises(self, listing: Listing) -> bool:
        """Say whether Orbax's metadata stands directly in this folder."""
        names = (*listing.names, *listing.escapes)
        return TREE in names or CHECKPOINT in names

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Read the metadata, of the tree, its arrays and its database.

        Returns:
            One layout: of the arrays directly here. Items in folders are parts of their own.

        Raises:
            StoreError: The store did not deliver.
            LimitExceededError: Beyond `limits`.
        """
        opening = _Opening(store, listing, limits, FindingBag())
        opening.add(not_opened(name) for name in (TREE, CHECKPOINT, MANIFEST) if name in listing.escapes)
        files: list[MetadataFile] = []
        if CHECKPOINT in listing.files:
            data, file = read_file(store, listing, CHECKPOINT, limits)
            files.append(file)
            opening.add(check_commit(data, has_marker=COMMIT_MARKER in listing.files))
            opening.add(_lost_items(data, listing))
        if TREE not in listing.files:
            sidecars = tuple(sorted(_outside_of_items(listing, files)))
            findings = opening.bag.findings()
            return (Layout(format=FORMAT, metadata_files=tuple(files), findings=findings, sidecars=sidecars),)
        data, file = read_file(store, listing, TREE, limits)
        return (opening.layout(read_tree(data), (*files, file)),)


ADAPTER: Final = OrbaxAdapter()


def _lost_items(data: bytes, listing: Listing) -> Iterator[Finding]:
    """Doubt items of which no folder or no tree is there, and a checkpoint of neither items nor a tree."""
    items = items_of(data)
    for name, is_tree in sorted(items.items()):
        wanted = f"{name}/{TREE}" if is_tree else name
        is_here = wanted in listing.files if is_tree else name in listing.folders
        if not is_here and not any(f"{wanted}/".startswith(f"{path}/") for path in listing.escapes):
            yield Finding(
                code=FindingCode.MISSING_SHARD,
                check=CheckName.EXISTENCE,
                severity=Severity.UNKNOWN,
                message=f"{CHECKPOINT} names the item {shown(name)}, and {shown(wanted)} is not here",
                file=wanted[:1000],
                is_retryable=True,
            )
    if not items and TREE not in (*listing.names, *listing.escapes):
        yield not_read(CHECKPOINT, f"names no items, and there is no {TREE} beside it")


def _outside_of_items(listing: Listing, read: list[MetadataFile]) -> Iterator[str]:
    """Yield files that are no part of an item which has metadata of its own."""
    items = {path.rpartition("/")[0] for path in listing.files if path.endswith(f"/{TREE}")}
    known = {file.path for file in read}
    for path in listing.files:
        is_of_item = any(path.startswith(f"{item}/") for item in items)
        if not is_of_item and path not in known:
            yield path


class _Opening(NamedTuple):
    """What opening one folder needs."""

    store: Store
    listing: Listing
    limits: Limits
    bag: FindingBag

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.bag.add(finding)

    def layout(self, tree: Tree, files: tuple[MetadataFile, ...]) -> Layout:
        self.add(tree.findings)
        if tree.is_ocdbt and MANIFEST not in (*self.listing.files, *self.listing.escapes):
            self.bag.add(_no_database())
        keys = read_key_map(self.store, self.listing, self.limits)
        self.add(keys.findings)
        arrays, array_files = self._arrays(keys)
        if not keys.findings:  # else arrays may lie below what was not read
            self.add(_lost_arrays(tree, {array.name for array in arrays}, keys, self.listing.escapes))
        placed = _place(arrays, tree, keys, self.bag)
        files = (*files, *keys.metadata_files, *array_files)
        return Layout(
            format=FORMAT,
            metadata_files=files,
            shards=tuple(_shards(placed.items, keys, self.listing)),
            tensors=placed.tensors,
            findings=self.bag.findings(),
            stock_reader_gap=STOCK_READER_GAP,
            missing_items=placed.missing,
            sidecars=tuple(sorted(self._sidecars(files, placed.items, keys))),
        )

    def _arrays(self, keys: KeyMap) -> tuple[list[ZarrArray], list[MetadataFile]]:
        arrays: list[ZarrArray] = []
        files: list[MetadataFile] = []
        num_chunks = 0
        for name, key in array_names(keys.values):
            try:
                if keys.is_database:
                    data = read_value(self.store, self.listing, keys.values[key])
                else:
                    data, file = read_file(self.store, self.listing, key, self.limits)
                    files.append(file)
                array = self._array(name, key, data)
            except FormatError as error:
                self.bag.add(malformed(key, f"is malformed: {error}", fqn=name))
                continue
            if array is not None:
                arrays.append(array)
                num_chunks += array.num_chunks
            if num_chunks > self.limits.max_items:
                msg = f"more than {self.limits.max_items} chunks"
                raise LimitExceededError(msg)
        return arrays, files

    def _array(self, name: str, key: str, data: bytes) -> ZarrArray | None:
        fields, faults = parse_json(data, file=key)
        self.add(faults)
        if fields is None or fields.get("node_type") == "group":
            return None
        return parse_array(name, fields)

    def _sidecars(
        self, files: tuple[MetadataFile, ...], items: Mapping[str, list[Item]], keys: KeyMap
    ) -> Iterator[str]:
        known = {*(file.path for file in files), *items, *keys.reach}
        yield from (path for path in self.listing.files if path not in known)


def _no_database() -> Finding:
    return Finding(
        code=FindingCode.NOT_COMMITTED,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"{TREE} says that the arrays lie in a database, and its {MANIFEST} is not here:"
        " lost, or those of the processes were never merged",
        file=MANIFEST,
        expected=MANIFEST,
        observed="no such file",
    )


def _lost_arrays(tree: Tree, found: set[str], keys: KeyMap, escapes: tuple[str, ...]) -> Iterator[Finding]:
    """Miss arrays that the tree names and of which no metadata is stored."""
    last = V3_NAME if tree.is_zarr3 else V2_NAME
    for name in tree.arrays:
        key = f"{name}/{last}"
        if name in found or key in keys.values:
            continue
        link = next((path for path in escapes if f"{key}/".startswith(f"{path}/")), None)
        if link is not None:
            yield not_opened(link)
            continue
        is_certain = is_plain_name(name)
        yield Finding(
            code=FindingCode.MISSING_ITEM if keys.is_database else FindingCode.MISSING_SHARD,
            check=CheckName.EXISTENCE,
            severity=Severity.ERROR if is_certain else Severity.UNKNOWN,
            basis=Basis.DAMAGE if is_certain else None,
            message=f"missing {key}: {TREE} names this array",
            file=None if keys.is_database else key[:1000],
            fqn=name[:1000],
            expected="an array of this name",
            observed="none",
        )


class _Placed(NamedTuple):
    """Arrays and where their chunks lie.

    Args:
        tensors: Sorted by name.
        items: Chunks by file.
        missing: Chunks that should be in the database and are not.
    """

    tensors: tuple[Tensor, ...]
    items: dict[str, list[Item]]
    missing: tuple[tuple[str, Slice | None], ...]


def _place(arrays: list[ZarrArray], tree: Tree, keys: KeyMap, bag: FindingBag) -> _Placed:
    tensors: list[Tensor] = []
    items: dict[str, list[Item]] = {}
    missing: list[tuple[str, Slice | None]] = []
    for array in arrays:
        slices: list[Slice] = []
        for key, part in array.chunk_keys():
            value = keys.values.get(key)
            slices.append(array.within(part))
            if value is not None and value.inline is None:
                item = Item(
                    array.name,
                    ItemKind.TENSOR,
                    value.offset,
                    value.length_bytes,
                    array.dtype,
                    part,
                    array.transforms,
                )
                items.setdefault(value.path, []).append(item)
            elif value is None and not tree.has_all_chunks:
                bag.add(_may_be_zeros(array.name, key))
            elif value is None and keys.is_database:
                missing.append((array.name, slices[-1]))
            elif value is None:
                items.setdefault(key, [])
        tensors.append(Tensor(array.name, array.dtype, array.shape, tuple(slices)))
    return _Placed(tuple(tensors), items, tuple(missing))


def _may_be_zeros(name: str, key: str) -> Finding:
    return Finding(
        code=FindingCode.MISSING_ITEM,
        check=CheckName.COVERAGE,
        severity=Severity.UNKNOWN,
        message=f"no chunk {key}: lost, or nothing but zeros, which this save did not store",
        fqn=name,
        expected=key,
        observed="no such chunk",
    )


def _shards(items: Mapping[str, list[Item]], keys: KeyMap, listing: Listing) -> Iterator[Shard]:
    """Yield the files that hold chunks, and those that hold nodes of the database.

    A database keeps what older versions of it refer to: bytes that the newest one does not
    reach are none too many.
    """
    for path in sorted({*items, *keys.reach}):
        held = sorted(items.get(path, ()), key=lambda item: (item.offset, item.length_bytes, item.fqn))
        ends = [item.offset + item.length_bytes for item in held]
        kept = listing.files[path].length_bytes if keys.is_database and path in listing.files else 0
        yield Shard(
            path=path,
            encoding=Encoding.ZARR_CHUNKS,
            items=tuple(held),
            min_length_bytes=max([*ends, keys.reach.get(path, 1), kept]),
        )

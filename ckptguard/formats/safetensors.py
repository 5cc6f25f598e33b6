"""The safetensors adapter: single files, Hugging Face's sharded models, torch's HF writer.

Which tensors there are is said by each file's own header; an index only places them.
The format has no checksum: without a manifest its content is never more than read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ckptguard.errors import LimitExceededError
from ckptguard.formats.safetensors_header import HeaderReading, read_header
from ckptguard.formats.safetensors_index import INDEX_NAME, IndexReading, describes_other_files, read_index
from ckptguard.formats.safetensors_layout import FORMAT, build_layout
from ckptguard.formats.safetensors_sets import FileSet, group_files, is_shard_name
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

_SIDECAR_SUFFIXES: Final = (".json", ".jinja", ".md", ".model", ".py", ".tiktoken", ".txt")


class SafetensorsAdapter:
    """Folders that hold `*.safetensors` files, or an index of some."""

    name = FORMAT

    def recognises(self, listing: Listing) -> bool:
        """Say whether a safetensors file or index stands directly in this folder."""
        return any(is_shard_name(name) or INDEX_NAME.fullmatch(name) for name in _names(listing))

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Read every header and index of this folder.

        Returns:
            One layout for each set of files that belongs together: `model.safetensors` and
            `model.fp16.safetensors` name the same tensors and are two sets. Missing shards
            stand in the layout, with the tensors that an index places there.

        Raises:
            StoreError: The store did not deliver.
            LimitExceededError: More tensors than `limits.max_items`.
        """
        shards = frozenset(name for name in _names(listing) if is_shard_name(name))
        indexes = [
            read_index(store, listing, name, limits) for name in listing.names if INDEX_NAME.fullmatch(name)
        ]
        doubts = [
            finding
            for reading in indexes
            if reading.index is not None and (finding := describes_other_files(reading.index, shards))
        ]
        others = {finding.file for finding in doubts}
        usable = [reading.index for reading in indexes if reading.index and reading.file.path not in others]
        sets = group_files(shards, usable) or (FileSet(files=()),)
        paths = sorted(shards.union(*(file_set.files for file_set in sets)))
        headers = _read_headers(store, listing, paths, limits)
        layouts = [build_layout(file_set, headers) for file_set in sets]
        return _with_folder_facts(layouts, indexes, doubts, listing)


ADAPTER: Final = SafetensorsAdapter()


def _names(listing: Listing) -> Iterator[str]:
    """Yield the files directly in a folder, those that are links out of the root included."""
    yield from listing.names
    yield from (path for path in listing.escapes if "/" not in path)


def _read_headers(
    store: Store, listing: Listing, paths: Iterable[str], limits: Limits
) -> dict[str, HeaderReading]:
    readings: dict[str, HeaderReading] = {}
    num_tensors = 0
    for path in paths:
        if path in listing.files:
            readings[path] = reading = read_header(store, listing, path, limits)
            num_tensors += len(reading.header.tensors) if reading.header else 0
        if num_tensors > limits.max_items:
            msg = f"more than {limits.max_items} tensors"
            raise LimitExceededError(msg)
    return readings


def _with_folder_facts(
    layouts: Sequence[Layout], indexes: Sequence[IndexReading], doubts: Sequence[Finding], listing: Listing
) -> tuple[Layout, ...]:
    """Add to the first layout what concerns the folder: unusable indexes and sidecars."""
    used = {file.path for layout in layouts for file in layout.metadata_files}
    unused = tuple(reading.file for reading in indexes if reading.file.path not in used)
    faults = [finding for reading in indexes for finding in reading.findings]
    escaped = [name for name in listing.escapes if INDEX_NAME.fullmatch(name)]
    sidecars = tuple(
        name
        for name in listing.names
        if name.endswith(_SIDECAR_SUFFIXES) and not name.startswith(".") and not INDEX_NAME.fullmatch(name)
    )
    first = replace(
        layouts[0],
        metadata_files=(*layouts[0].metadata_files, *unused),
        findings=(*faults, *doubts, *map(_escaping_index, escaped), *layouts[0].findings),
        sidecars=sidecars,
    )
    return (first, *layouts[1:])


def _escaping_index(path: str) -> Finding:
    return Finding(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=f"{path} is a link out of the allowed root; it was not opened",
        file=path,
    )

"""A `.metadata`, read: bytes in, compact tables out. No torch, nothing of the writer is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptguard.errors import LimitExceededError
from ckptguard.formats.dcp_builders import BUILDERS, KNOWN_GLOBALS
from ckptguard.formats.dcp_declared import Declared, is_name, read_declared
from ckptguard.formats.dcp_findings import (
    FindingBag,
    empty,
    malformed,
    shown,
    trailing,
    unknown_class,
    unreadable,
)
from ckptguard.formats.dcp_stored import Placed, place_items
from ckptguard.formats.dcp_values import Metadata, StorageMeta
from ckptguard.formats.pickle_reader import Opaque, PickleError, paused_collector, read_pickle
from ckptguard.model.finding import Finding
from ckptguard.model.layout import Item, Shard, Slice, Tensor
from ckptguard.model.policy import Limits

__all__ = ["KNOWN_GLOBALS", "MetadataTables", "read_metadata"]

_MAX_SAVE_ID_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTables:
    """What one metadata file says.

    Args:
        tensors: Sorted by FQN.
        objects: FQNs of pickled objects, sorted.
        shards: Sorted by path, items by offset; as if every item were a torch zip.
        missing_items: Declared, and stored nowhere.
        orphan_items: Stored, and not declared; they stand in `shards` as well.
        save_id: torch's, where written (torch >= 2.4).
        globals: `module.name` of all that an unpickler would import, up to where the
            bytes could be read.
        findings: What is wrong with it.
    """

    tensors: tuple[Tensor, ...] = ()
    objects: tuple[str, ...] = ()
    shards: tuple[Shard, ...] = ()
    missing_items: tuple[tuple[str, Slice | None], ...] = ()
    orphan_items: tuple[Item, ...] = ()
    save_id: str | None = None
    globals: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


def read_metadata(
    data: bytes, *, file: str, limits: Limits, has_shortcuts: bool | None = None
) -> MetadataTables:
    """Read a metadata file; damage becomes findings.

    Args:
        data: All of its bytes.
        file: Its path, for findings.
        limits: `max_items`.
        has_shortcuts: As in `read_pickle`; the answer is the same either way.

    Raises:
        LimitExceededError: More items than allowed, or values out of proportion to the bytes.

    Cost: per item 5 to 10 microseconds and 600 bytes; linear whatever the bytes are.
    """
    if not data:
        return MetadataTables(findings=(empty(file),))
    with paused_collector():
        try:
            reading = read_pickle(data, builders=BUILDERS, has_shortcuts=has_shortcuts)
        except PickleError as error:
            return MetadataTables(globals=error.globals, findings=(unreadable(file, data, error),))
        bag = FindingBag()
        if reading.length_bytes < len(data):
            bag.add(trailing(file, end=reading.length_bytes, length_bytes=len(data)))
        tables = _tables(reading.value, file=file, limits=limits, bag=bag)
    return _completed(tables, reading.globals, bag)


def _completed(tables: "_Tables", names: frozenset[str], bag: FindingBag) -> MetadataTables:
    declared, placed, save_id = tables.declared, tables.placed, tables.save_id
    return MetadataTables(
        tensors=tuple(declared.tensors[fqn] for fqn in sorted(declared.tensors)),
        objects=tuple(sorted(declared.objects)),
        shards=placed.shards(),
        missing_items=tuple(placed.missing),
        orphan_items=tuple(placed.orphans),
        save_id=save_id,
        globals=names,
        findings=bag.findings(),
    )


@dataclass(frozen=True, slots=True)
class _Tables:
    declared: Declared
    placed: Placed
    save_id: str | None = None


def _tables(value: object, *, file: str, limits: Limits, bag: FindingBag) -> _Tables:
    if type(value) is not Metadata:
        if isinstance(value, Opaque):
            bag.add(unknown_class(file, value.ref.dotted, "the whole"))
        else:
            bag.add(malformed(file, f"it holds {shown(value)} instead of torch's Metadata"))
        return _Tables(Declared(), Placed())
    entries = _mapping(value.state_dict_metadata, "state_dict_metadata", file=file, bag=bag)
    stored = _mapping(value.storage_data, "storage_data", file=file, bag=bag)
    if max(len(entries), len(stored)) > limits.max_items:
        msg = f"{file} lists {max(len(entries), len(stored))} items, limit {limits.max_items}"
        raise LimitExceededError(msg)
    declared = read_declared(entries, file=file, bag=bag)
    placed = place_items(stored, declared, file=file, bag=bag)
    if not isinstance(value.storage_data, dict):
        placed.missing.clear()  # said once, above
    return _Tables(declared, placed, _save_id(value.storage_meta))


def _mapping(value: object, name: str, *, file: str, bag: FindingBag) -> Mapping[object, object]:
    if isinstance(value, dict):
        return value
    if isinstance(value, Opaque):
        bag.add(unknown_class(file, value.ref.dotted, name))
    else:
        bag.add(malformed(file, f"{name} is {shown(value)}"))
    return {}


def _save_id(meta: object) -> str | None:
    save_id = meta.save_id if isinstance(meta, StorageMeta) else None
    return save_id if is_name(save_id) and len(save_id) <= _MAX_SAVE_ID_CHARS else None
